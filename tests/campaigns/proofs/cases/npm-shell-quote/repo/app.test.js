const assert = require('node:assert');
const test = require('node:test');
const { say } = require('./app');

test('a word stays one word', () => {
  assert.strictEqual(say('two  blanks'), 'two  blanks');
  assert.strictEqual(say('$HOME'), '$HOME');
});
