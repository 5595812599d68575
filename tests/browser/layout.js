const problems = [];
for (const button of document.querySelectorAll("button, .button")) {
  const style = getComputedStyle(button), room = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
  const lines = Math.round((button.clientHeight - room) / parseFloat(style.lineHeight));
  if (button.textContent.trim() && !/\s/.test(button.textContent.trim()) && lines > 1) problems.push("a broken word on a button: " + button.textContent.trim());
}
for (const cell of document.querySelectorAll("th, td")) {
  if (cell.getBoundingClientRect().right > innerWidth + 1 && cell.offsetParent) problems.push("a cell beyond the window: " + cell.textContent.trim().slice(0, 30));
}
for (const one of document.querySelectorAll("th, td, p, li, dd, summary, figcaption *, label")) {
  const text = [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  if (text.length > 5 && !one.closest(".hidden, .skip") && one.checkVisibility() && one.clientWidth && one.clientWidth < 36) problems.push("letters one below the other: " + text.slice(0, 30));
}
for (const one of document.querySelectorAll("figcaption strong, h1, h2, h3")) {
  const range = document.createRange(), node = one.firstChild;
  const words = node?.nodeType === 3 ? [...node.data.matchAll(/\S+/g)] : [];
  for (const word of words.filter((found) => found[0].length < 25)) {
    range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
    if (range.getClientRects().length > 1) problems.push("a broken word: " + word[0]);
  }
}
if (document.documentElement.scrollWidth > innerWidth) problems.push("wider than the window by " + (document.documentElement.scrollWidth - innerWidth));
return problems;
