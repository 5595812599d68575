const assert = require('node:assert');
const test = require('node:test');
const { profile } = require('./app');

test('nobody makes themselves an administrator', () => {
  assert.strictEqual(profile("{name: 'Ada', admin: true}").admin, false);
  assert.strictEqual(profile("{name: 'Ada'}").name, 'Ada');
});
