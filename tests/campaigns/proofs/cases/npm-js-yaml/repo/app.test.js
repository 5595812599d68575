const assert = require('node:assert');
const test = require('node:test');
const { names } = require('./app');

test('names are listed', () => {
  assert.deepStrictEqual(names('host: a\nport: 1\n'), ['host', 'port']);
});
