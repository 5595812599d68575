// GHSA-3jfq-g458-7qm9: of ////path one slash is stripped, and the entry lands at /path.
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { restore } = require('../app');

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'proof-'));
const outside = path.join(root, 'outside.txt');

// A tar archive of one empty file.
function archive(name) {
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write('0000644\0', 100);
  header.write('0000000\0', 108);
  header.write('0000000\0', 116);
  header.write('00000000000\0', 124);
  header.write('00000000000\0', 136);
  header.write('        0', 148);
  header.write('ustar\x0000', 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return Buffer.concat([header, Buffer.alloc(1024)]);
}

fs.mkdirSync(path.join(root, 'target'));
fs.writeFileSync(path.join(root, 'backup.tar'), archive(`///${outside}`));
restore(path.join(root, 'backup.tar'), path.join(root, 'target'))
  .catch((error) => console.log('refused:', error.message))
  .then(() => assert.ok(!fs.existsSync(outside), 'written outside of the folder'));
