// GHSA-f6v4-cf5j-vf3w: a list around __proto__ passes dset's check and is then used as the key.
const assert = require('node:assert');
const { apply } = require('../app');

apply({}, JSON.parse('[[[["__proto__"], "polluted"], true]]'));
assert.strictEqual({}.polluted, undefined, 'Object.prototype was changed');
