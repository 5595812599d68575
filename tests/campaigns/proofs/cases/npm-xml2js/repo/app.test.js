const assert = require('node:assert');
const test = require('node:test');
const { order } = require('./app');

test('items are read', async () => {
  const read = await order('<order><item>pen</item><item>ink</item></order>');
  assert.deepStrictEqual([...read.item], ['pen', 'ink']);
});

test('an order may be empty', async () => {
  assert.deepStrictEqual((await order('<order><note>none</note></order>')).item, []);
});
