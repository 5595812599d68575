// GHSA-phwq-j96m-2c2q: parameters named `settings[view options]` become options, and so code.
const assert = require('node:assert');
const { page } = require('../app');

const options = { outputFunctionName: 'x; globalThis.injected = true; var y' };
page({ name: 'Eve', settings: { 'view options': options } })
  .catch((error) => console.log('refused:', error.message.split('\n')[0]))
  .then(() => assert.strictEqual(globalThis.injected, undefined, 'data ran as code'));
