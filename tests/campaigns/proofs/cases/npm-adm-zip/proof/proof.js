// GHSA-3v6h-hqm4-2rg6: an entry named ../… is written beside the target folder ("zip slip").
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { unpack } = require('../app');

const NAME = Buffer.from('../outside.txt');

// An archive of one empty stored entry: local header, central directory, end record.
function archive() {
  const local = Buffer.alloc(30);
  local.writeUInt32LE(0x04034b50, 0);
  local.writeUInt16LE(20, 4);
  local.writeUInt16LE(NAME.length, 26);
  const central = Buffer.alloc(46);
  central.writeUInt32LE(0x02014b50, 0);
  central.writeUInt16LE(20, 4);
  central.writeUInt16LE(20, 6);
  central.writeUInt16LE(NAME.length, 28);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(1, 8);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(46 + NAME.length, 12);
  end.writeUInt32LE(30 + NAME.length, 16);
  return Buffer.concat([local, NAME, central, NAME, end]);
}

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'proof-'));
fs.mkdirSync(path.join(root, 'target'));
try {
  unpack(archive(), path.join(root, 'target'));
} catch (error) {
  console.log('refused:', String(error.message || error));
}
assert.ok(!fs.existsSync(path.join(root, 'outside.txt')), 'written outside of the folder');
