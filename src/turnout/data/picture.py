"""A picture of who holds which labels.

Clients stand side by side, those with the same most common label together; colour is the share of a client's samples
that have a label. Above `MOST_COLUMNS` clients a column is the mean of neighbours, so ten and ten thousand read alike.
The colours (cividis) run from dark to light and read the same with any colour vision, and in print.
"""

from typing import TYPE_CHECKING

import numpy as np

from turnout.data.federation import Federation
from turnout.errors import DataError
from turnout.streams import Floats, Ids

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_COLUMNS = 200
MOST_CLIENTS = 10_000  # of more clients, this many are looked at, evenly spaced
BLOCK = 500  # clients counted at a time, so that generated ones need little memory


def label_table(federation: Federation) -> tuple[Ids, Ids]:
    """Return the clients looked at and their (clients, classes) label counts."""
    if federation.num_classes is None:
        raise DataError(
            f"label_picture needs labels; the targets of {federation.name} are numbers. "
            "Picture federation.sizes instead."
        )
    count = min(federation.num_clients, MOST_CLIENTS)
    clients = np.unique(np.linspace(0, federation.num_clients - 1, count).round().astype(np.int64))
    blocks = [federation.label_counts(clients[i : i + BLOCK]) for i in range(0, len(clients), BLOCK)]
    return clients, np.concatenate(blocks)


def arranged(counts: Ids) -> Ids:
    """Return the order of the columns: by most common label, then by how common it is."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    top = shares.argmax(axis=1)
    return np.lexsort((-shares.max(axis=1), top))


def binned(counts: Ids, columns: int) -> tuple[Floats, Floats, Ids]:
    """Return the mean shares and mean sizes of neighbouring clients, and where each column begins."""
    sizes = counts.sum(axis=1)
    starts = np.unique(np.linspace(0, len(counts), min(columns, len(counts)), endpoint=False).astype(np.int64))
    width = np.diff(np.append(starts, len(counts)))
    shares = np.add.reduceat(counts / sizes[:, None], starts, axis=0) / width[:, None]
    return shares, np.add.reduceat(sizes, starts) / width, starts


def label_picture(federation: Federation) -> "go.Figure":
    """Return a heat map of label shares by client, with the clients' sizes above it."""
    from plotly.subplots import make_subplots  # slow to import, and rarely wanted

    clients, counts = label_table(federation)
    order = arranged(counts)
    shares, sizes, starts = binned(counts[order], MOST_COLUMNS)
    names = [_column_name(column) for column in np.split(clients[order], starts[1:])]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.25, 0.75], vertical_spacing=0.03)
    figure.add_bar(
        y=sizes,
        customdata=names,
        marker_color="#00204d",
        hovertemplate="%{customdata}<br>%{y:.0f} samples<extra></extra>",
        row=1,
        col=1,
    )
    figure.add_heatmap(
        z=shares.T,
        customdata=np.broadcast_to(np.array(names), shares.T.shape),
        zmin=0.0,
        zmax=1.0,
        colorscale="Cividis",
        colorbar={"title": "share", "len": 0.75, "y": 0.36},
        hovertemplate="%{customdata}<br>label %{y}: %{z:.1%}<extra></extra>",
        row=2,
        col=1,
    )
    looked_at = f"{len(order):,}" + ("" if len(order) == federation.num_clients else f" of {federation.num_clients:,}")
    grouping = "" if len(order) == len(starts) else f", {len(order) / len(starts):.0f} to a column"
    figure.update_layout(title=f"{federation.name}: labels of {looked_at} clients{grouping}")
    figure.update_layout(showlegend=False, bargap=0.0, template="plotly_white")
    figure.update_yaxes(title_text="samples", row=1, col=1)
    figure.update_yaxes(title_text="label", dtick=1 if shares.shape[1] <= 20 else None, row=2, col=1)
    figure.update_xaxes(title_text="clients, by most common label", showticklabels=False, row=2, col=1)
    return figure


def _column_name(clients: Ids) -> str:
    if len(clients) == 1:
        return f"client {clients[0]}"
    return f"{len(clients)} clients: {', '.join(map(str, clients[:4]))}{', …' if len(clients) > 4 else ''}"
