const assert = require('node:assert');
const test = require('node:test');
const { script } = require('./app');

test('a state is written into the page', () => {
  assert.strictEqual(script({ page: 2 }), '<script>window.state = {"page":2}</script>');
});
