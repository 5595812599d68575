// GHSA-rp65-9cf3-cjxr: blanks after a formula can be matched by either of two parts of an expression.
const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const { rows } = require('../app');

if (process.argv[2] === 'child') {
  assert.deepStrictEqual(rows('n', 2), [0, 1]);
  try {
    rows(`2n${' '.repeat(500000)}!`, 1);
  } catch (error) {
    console.log('refused:', error.message.slice(0, 40));
  }
} else {
  // Milliseconds without the flaw, many minutes with it.
  const child = spawnSync(process.execPath, [__filename, 'child'], { timeout: 10000 });
  assert.strictEqual(child.status, 0, 'one formula takes longer than 10 s, or none is read');
}
