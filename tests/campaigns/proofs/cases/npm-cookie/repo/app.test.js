const assert = require('node:assert');
const test = require('node:test');
const { remember } = require('./app');

test('a preference is remembered', () => {
  assert.strictEqual(remember('theme', 'dark'), 'theme=dark; HttpOnly');
});
