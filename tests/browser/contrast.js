const parse = (text) => { const n = text.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const lum = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (one) => { for (let at = one; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
const low = new Set();
for (const one of document.querySelectorAll("body *")) {
  if (!one.checkVisibility() || one.closest("svg, .hidden, .skip, option")) continue;
  if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
  const [a, b] = [lum(parse(getComputedStyle(one).color)), lum(ground(one))].sort((x, y) => x - y);
  if ((b + 0.05) / (a + 0.05) < 4.5) low.add(one.localName + "." + one.className + " " + ((b + 0.05) / (a + 0.05)).toFixed(2));
}
return [...low];
