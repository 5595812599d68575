const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const tar = require('tar');
const { restore } = require('./app');

test('a backup is restored', async () => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'restore-'));
  const [from, to, file] = ['from', 'to', 'backup.tar'].map((name) => path.join(root, name));
  fs.mkdirSync(from);
  fs.mkdirSync(to);
  fs.writeFileSync(path.join(from, 'a.txt'), 'hello');
  await tar.c({ file, cwd: from }, ['a.txt']);
  await restore(file, to);
  assert.strictEqual(fs.readFileSync(path.join(to, 'a.txt'), 'utf8'), 'hello');
});
