const assert = require('node:assert');
const test = require('node:test');
const { tree } = require('./app');

test('keys become a tree', () => {
  assert.deepStrictEqual(tree({ 'menu/open': 'Apri' }), { menu: { open: 'Apri' } });
});
