// GHSA-jf85-cpcp-j695: defaultsDeep follows constructor.prototype of a payload into Object.prototype.
const assert = require('node:assert');
const { settings } = require('../app');

settings(JSON.parse('{"constructor": {"prototype": {"polluted": true}}}'));
assert.strictEqual({}.polluted, undefined, 'Object.prototype was changed');
