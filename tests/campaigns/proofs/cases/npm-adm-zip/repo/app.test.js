const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const AdmZip = require('adm-zip');
const { unpack } = require('./app');

test('an archive is unpacked', () => {
  const zip = new AdmZip();
  zip.addFile('notes/a.txt', Buffer.from('hello'));
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'unpacked-'));
  unpack(zip.toBuffer(), folder);
  assert.strictEqual(fs.readFileSync(path.join(folder, 'notes', 'a.txt'), 'utf8'), 'hello');
});
