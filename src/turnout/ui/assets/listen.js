"use strict";
// Listens to the server while the page is looked at: a browser has few connections to spare, and the run needs its processor.
function listen(address, handlers) {
  let events = null;
  const lost = (is) => (document.querySelector('[data-part="lost"]').hidden = !is);
  const close = () => { if (events) events.close(); events = null; };
  const open = () => {
    if (events || document.hidden) return;
    events = new EventSource(address);
    events.addEventListener("open", () => lost(false));
    events.addEventListener("error", () => lost(true));
    for (const [name, handle] of Object.entries(handlers)) events.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}
