// GHSA-2j2x-2gpw-g8fm: unflatten follows a key __proto__ into Object.prototype.
const assert = require('node:assert');
const { tree } = require('../app');

tree({ '__proto__/polluted': true });
assert.strictEqual({}.polluted, undefined, 'Object.prototype was changed');
