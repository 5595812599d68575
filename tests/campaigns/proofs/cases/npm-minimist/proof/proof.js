// GHSA-xvch-5gv4-984h: an option's dotted name walks over `constructor` to Function.prototype.
const assert = require('node:assert');
const { options } = require('../app');

options(['--_.constructor.constructor.prototype.polluted', 'yes']);
assert.strictEqual((() => {}).polluted, undefined, 'Function.prototype was changed');
