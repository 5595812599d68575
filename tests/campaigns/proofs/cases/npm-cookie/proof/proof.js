// GHSA-pxg6-pf52-xh8x: a name with "=" and ";" in it writes a cookie and attributes of its own.
const assert = require('node:assert');
const { remember } = require('../app');

assert.throws(() => remember('session=stolen; Max-Age=2592000; a', 'dark'), TypeError);
