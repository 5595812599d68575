const assert = require('node:assert');
const test = require('node:test');
const { html } = require('./app');

test('emphasis is rendered', () => {
  assert.strictEqual(html('a *b*'), '<p>a <em>b</em></p>');
});
