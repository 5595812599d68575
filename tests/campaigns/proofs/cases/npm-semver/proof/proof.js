// GHSA-c2qf-rxjj-qqgw: white space in a range is matched by overlapping parts of one expression.
const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const { fits } = require('../app');

if (process.argv[2] === 'child') {
  fits('1.2.5', `>=1.2.3 ${' '.repeat(600000)} <1.3.0`);
} else {
  // Milliseconds without the flaw, many minutes with it.
  const child = spawnSync(process.execPath, [__filename, 'child'], { timeout: 10000 });
  assert.strictEqual(child.status, 0, 'one range takes longer than 10 s');
}
