const assert = require('node:assert');
const test = require('node:test');
const { nested } = require('./app');

test('dotted names become objects', () => {
  const found = nested({ 'address.city': 'Rome', name: 'Ada' });
  assert.deepStrictEqual(found, { address: { city: 'Rome' }, name: 'Ada' });
});
