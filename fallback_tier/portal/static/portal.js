// What the pages do in a browser: keys, and the one policy for parts of pages that htmx puts in.
// Without this file every page still works: links are links, decisions are forms.
"use strict";
(() => {
  // The content security policy names this policy and no other. Parts come from this server's templates,
  // which escape every value; a function made of text is refused in any case.
  const policy = window.trustedTypes?.createPolicy("portal", { createHTML: (html) => html });
  const refuse = function () { throw new Error("no code is made of text here"); };
  window.htmx?.registerExtension("portal", {
    init: (api) => api.initSecurity(policy, refuse, refuse),
    // What a reader has opened stays open.
    htmx_before_morph_attr: (element, { attrName }) => !(attrName === "open" && element.localName === "details"),
  });

  const { page, fix } = document.body.dataset;
  const isTyping = (target) => target.matches?.("textarea, select, input:not([type=radio], [type=checkbox])");
  const rows = () => [...document.querySelectorAll("[data-rows] .row")];

  function choose(step) {
    const all = rows();
    const at = all.indexOf(document.activeElement);
    const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step));
    all[to]?.focus();
  }

  function turn(step) {
    const link = document.getElementById(step > 0 ? "next" : "previous");
    if (link) link.click();
  }

  function decide(key) {
    const radio = document.querySelector(`#decide input[data-key="${key}"]`);
    if (!radio) return false;
    radio.checked = true;
    document.getElementById("because").focus();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    if (event.key === "Escape" && isTyping(target)) { target.blur(); return; }
    if (target.id === "because" && event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      target.form.requestSubmit();
      return;
    }
    if (isTyping(target)) return;
    if (document.querySelector("dialog[open]")) return;
    const is = event.key;
    let done = true;
    if (is === "j" || is === "k") (page === "triage" ? turn : choose)(is === "j" ? 1 : -1);
    else if (is === "?") document.getElementById("keys")?.showModal();
    else if (page === "triage" && /^[arbog]$/.test(is)) done = decide(is);
    else if (page === "queue" && is === "Enter" && target === document.body) rows()[0]?.click();
    else done = false;
    if (done) event.preventDefault();
  });

  // A form is sent once, however often its button is pressed.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) { event.preventDefault(); return; }
    if (form.method === "post") form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });

  // The reason grows with its text; the page does not jump, it lies over the page's end.
  const because = document.getElementById("because");
  const grow = () => {
    because.rows = Math.min(8, because.value.split("\n").length);
  };
  because?.addEventListener("input", grow);

  // Parts that show the record are asked for again when something was recorded: the server tells it, as long
  // as the page is seen (a browser has few connections to a server); where it can't, they are asked for now
  // and then.
  const live = [...document.querySelectorAll("[data-live]")];
  const refresh = () => live.forEach((one) => window.htmx?.trigger(one, "changed"));
  let stream = null, last = null;
  function listen() {
    const from = new URL(document.body.dataset.changes, location);
    if (last !== null) from.searchParams.set("after", last);
    stream = new EventSource(from);
    stream.addEventListener("changed", (event) => {
      last = event.lastEventId;
      const fixes = JSON.parse(event.data);
      if (!fix || !fixes || fixes.includes(fix)) refresh();
    });
  }
  if (live.length && document.body.dataset.changes) {
    const isOpen = () => stream?.readyState === EventSource.OPEN;
    const look = () => {
      if (document.hidden) { stream?.close(); stream = null; return; }
      if (!stream || stream.readyState === EventSource.CLOSED) listen();
    };
    look();
    document.addEventListener("visibilitychange", look);
    window.addEventListener("pagehide", () => stream?.close());
    setInterval(() => { if (!document.hidden && !isOpen()) { refresh(); look(); } }, 10000);
  }

  if (page === "queue") rows()[0]?.focus({ preventScroll: true });
})();
