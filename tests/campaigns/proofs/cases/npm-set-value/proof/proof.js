// GHSA-4g88-fppr-53pp: a path of constructor.prototype leads set-value out of the object.
const assert = require('node:assert');
const { nested } = require('../app');

nested({ 'constructor.prototype.polluted': true });
assert.strictEqual({}.polluted, undefined, 'Object.prototype was changed');
