// GHSA-9c47-m6qq-7p4h: the value of a key __proto__ becomes the prototype of the parsed object.
const assert = require('node:assert');
const { profile } = require('../app');

assert.ok(!profile('{"name": "Eve", "__proto__": {"admin": true}}').admin, 'Eve is admin');
