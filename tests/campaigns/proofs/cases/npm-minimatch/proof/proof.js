// GHSA-f8q6-p94x-37v3: for each opening brace the rest of the pattern is searched for a closing one.
const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const { patterns } = require('../app');

if (process.argv[2] === 'child') {
  try {
    patterns('{'.repeat(1000000));
  } catch (error) {
    console.log('refused:', error.message);
  }
} else {
  // Milliseconds without the flaw, many minutes with it.
  const child = spawnSync(process.execPath, [__filename, 'child'], { timeout: 10000 });
  assert.strictEqual(child.status, 0, 'one pattern takes longer than 10 s');
}
