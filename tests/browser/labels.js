const named = (one) => (one.getAttribute("aria-label") || one.labels?.[0]?.innerText || one.innerText || one.title || one.alt || "").trim();
const seen = (one) => one.checkVisibility();
const problems = [];
for (const one of document.querySelectorAll("a, button, input:not([type=hidden]), textarea, select, summary"))
  if (seen(one) && !named(one)) problems.push("no name: " + one.outerHTML.slice(0, 120));
for (const one of document.querySelectorAll("img, [role=img]"))
  if (one.getAttribute("alt") === null && !one.getAttribute("aria-label")) problems.push("no alt: " + one.outerHTML.slice(0, 120));
for (const one of document.querySelectorAll("nav, form.decide, [role=region]"))
  if (!one.getAttribute("aria-label")) problems.push("no label: " + one.outerHTML.slice(0, 120));
const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) problems.push("twice: " + id);
for (const one of document.querySelectorAll("[aria-labelledby]"))
  if (!document.getElementById(one.getAttribute("aria-labelledby"))) problems.push("labelled by nothing: " + one.outerHTML.slice(0, 120));
if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
let level = 1;
for (const one of document.querySelectorAll("main :is(h1, h2, h3, h4)")) {
  const now = Number(one.localName[1]);
  if (now > level + 1) problems.push("heading skips: " + one.outerHTML.slice(0, 80));
  level = now;
}
if (!document.documentElement.lang) problems.push("no language");
for (const one of document.querySelectorAll("th")) if (!one.scope) problems.push("th without scope: " + one.innerText);
for (const one of document.querySelectorAll(".scroll")) if (one.tabIndex !== 0) problems.push("can't be scrolled by key");
if ([...document.querySelectorAll("[tabindex]")].some((one) => one.tabIndex > 0)) problems.push("tab order is forced");
for (const button of document.querySelectorAll("button, .button")) {
  const style = getComputedStyle(button), room = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
  const lines = Math.round((button.clientHeight - room) / parseFloat(style.lineHeight));
  if (button.textContent.trim() && !/\s/.test(button.textContent.trim()) && lines > 1) problems.push("a broken word on a button: " + button.textContent.trim());
}
for (const cell of document.querySelectorAll("th, td")) {
  if (cell.getBoundingClientRect().right > innerWidth + 1 && cell.offsetParent) problems.push("a cell beyond the window: " + cell.textContent.trim().slice(0, 30));
}
if (document.documentElement.scrollWidth > innerWidth) problems.push("wider than the window by " + (document.documentElement.scrollWidth - innerWidth));
return problems;
