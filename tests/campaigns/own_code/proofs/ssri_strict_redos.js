// A strict parse of one short hostile integrity string must end within seconds.
'use strict'

const assert = require('node:assert')
const { spawnSync } = require('node:child_process')

const hostile = `sha512-${'A'.repeat(86)}==${'?'.repeat(60)}\u00e9`
const script = `require('./').parse(${JSON.stringify(hostile)}, { strict: true })`
const child = spawnSync(process.execPath, ['-e', script], { cwd: __dirname, timeout: 8000 })

const ended = !child.error || child.error.code !== 'ETIMEDOUT'
assert.ok(ended, 'a strict parse of a short string of question marks backtracks without end')
assert.strictEqual(child.status, 0, String(child.stderr))
