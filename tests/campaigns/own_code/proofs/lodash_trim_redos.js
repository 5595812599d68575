// Trimming a long run of blanks in the middle of a text must take linear time, on a machine of any speed.
'use strict'

const assert = require('node:assert')
const { spawnSync } = require('node:child_process')
const test = require('node:test')

// A minute for each where the time grows with the square, milliseconds where it does not.
const BLANKS = 300_000
const LIMIT_MS = 8_000

for (const method of ['toNumber', 'trim', 'trimEnd']) {
  test(`${method} takes linear time`, () => {
    const script = `require('./lodash.js').${method}('1' + ' '.repeat(${BLANKS}) + '1')`
    const child = spawnSync(process.execPath, ['-e', script], { cwd: __dirname, timeout: LIMIT_MS })
    const ended = !child.error || child.error.code !== 'ETIMEDOUT'
    assert.ok(ended, `${method} of a text with ${BLANKS} blanks backtracks without end`)
    assert.strictEqual(child.status, 0, String(child.stderr))
  })
}
