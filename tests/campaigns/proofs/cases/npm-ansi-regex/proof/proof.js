// GHSA-93q8-gq69-wqmw: a run of semicolons after "\u001b[" makes ansi-regex try every split of it.
const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const { plain } = require('../app');

if (process.argv[2] === 'child') {
  plain(`\u001b[${';'.repeat(600000)}`);
} else {
  // Milliseconds without the flaw, many minutes with it.
  const child = spawnSync(process.execPath, [__filename, 'child'], { timeout: 10000 });
  assert.strictEqual(child.status, 0, 'one line takes longer than 10 s');
}
