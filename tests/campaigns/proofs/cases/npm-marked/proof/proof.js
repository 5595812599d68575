// GHSA-rrrm-qjm4-v8hf: white space around a link definition's parts is matched in every way.
const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const { html } = require('../app');

if (process.argv[2] === 'child') {
  const blank = ' '.repeat(5000);
  html(`[x]:${blank}x ${blank}x ${blank}x`);
} else {
  // Milliseconds without the flaw, minutes with it.
  const child = spawnSync(process.execPath, [__filename, 'child'], { timeout: 10000 });
  assert.strictEqual(child.status, 0, 'one comment takes longer than 10 s, or fails');
}
