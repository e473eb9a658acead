"""Certificates and keys: an own certificate authority, the server's certificate, and one key pair per device."""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

DAYS = 365


def write_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write ca.crt, ca.key, server.crt and server.key; the server's certificate is good for these hosts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def usage(**given: bool) -> x509.KeyUsage:
        names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
                 "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
        return x509.KeyUsage(**{name: given.get(name, False) for name in names})

    now = datetime.now(UTC)
    ca_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    common = (
        x509.CertificateBuilder()
        .issuer_name(named("turnout deployment CA"))
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
    )
    own_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        common.subject_name(named("turnout deployment CA"))
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(own_id, critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        common.subject_name(named(hosts[0]))
        .public_key(server_key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    folder.mkdir(parents=True)
    for name, certificate, key in (("ca", ca, ca_key), ("server", server, server_key)):
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(_pem()))
        _write_secret(folder / f"{name}.key", _private(key, ssh=False))


def write_device_key(private: Path, public: Path) -> None:
    """Write a device's key pair in the format of OpenSSH, which Flower reads."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(private, _private(key, ssh=True))
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")


def public_pem(file: Path) -> bytes:
    """Return a public key as PEM, which is how Flower names it."""
    from cryptography.hazmat.primitives.serialization import PublicFormat, load_ssh_public_key

    key = load_ssh_public_key(file.read_bytes())
    pem: bytes = key.public_bytes(_pem(), PublicFormat.SubjectPublicKeyInfo)
    return pem.strip()


def covered_hosts(certificate: Path) -> tuple[set[str], datetime]:
    """Return the hosts that a certificate is good for, and until when."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = set(names.get_values_for_type(x509.DNSName)) | set(map(str, names.get_values_for_type(x509.IPAddress)))
    return hosts, found.not_valid_after_utc


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem() -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.PEM


def _private(key: Any, *, ssh: bool) -> bytes:
    from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat

    kind = PrivateFormat.OpenSSH if ssh else PrivateFormat.PKCS8
    body: bytes = key.private_bytes(_pem(), kind, NoEncryption())
    return body


def _write_secret(path: Path, body: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(body)
