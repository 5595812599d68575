const assert = require('node:assert');
const test = require('node:test');
const { settings } = require('./app');

test('what is not given comes from the defaults', () => {
  assert.deepStrictEqual(settings({ theme: { dark: true } }), { theme: { dark: true, size: 12 } });
});
