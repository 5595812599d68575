const assert = require('node:assert');
const test = require('node:test');
const { page } = require('./app');

test('the name is escaped', async () => {
  assert.strictEqual((await page({ name: '<Ada>' })).trim(), '<p>Hello &lt;Ada&gt;</p>');
});
