// GHSA-hrpp-h998-j3pp: `a[__proto__]=…` replaces the prototype of a parsed object by an array.
const assert = require('node:assert');
const { filters } = require('../app');

const found = filters('filter[__proto__]=b&filter[__proto__]&filter[length]=3');
assert.ok(!(found instanceof Array), 'the query chose the prototype');
