// GHSA-cf4h-3jhx-xvhq: the name of the variable is compiled into the template's parameter list.
const assert = require('node:assert');
const { letter } = require('../app');

try {
  letter('a = (globalThis.injected = true)');
} catch (error) {
  console.log('refused:', error.message);
}
assert.strictEqual(globalThis.injected, undefined, 'a name ran as code');
