// GHSA-8j8c-7jfh-h6hx: a mapping as a key is turned into a string by a function of the document's own.
const assert = require('node:assert');
const { names } = require('../app');

const own = "'function () { globalThis.injected = true; return String(1) }'";
try {
  names(`{ ? { toString: !<tag:yaml.org,2002:js/function> ${own} } : 1 }`);
} catch (error) {
  console.log('refused:', error.message.split('\n')[0]);
}
assert.strictEqual(globalThis.injected, undefined, 'the document ran code');
