// GHSA-776f-qx25-q3cc: an element __proto__ replaces the prototype of the parsed object, here by a list.
const assert = require('node:assert');
const { order } = require('../app');

order('<order><item>pen</item><__proto__><paid>yes</paid></__proto__></order>').then((read) => {
  assert.strictEqual(read[1], undefined, 'the order has what no order has');
});
