// Loads packages one by one, as their project does, and says which can't be loaded. Its text is run by node.
//
// Each in a process of its own: what ends the process, or hangs, decides only about itself.
// Usage: node -e TEXT SECONDS ALL_SECONDS '[["LABEL", "NAME", "FOLDER", "require"], …]': seconds for one, and
// for all; from the folder's point of view, by require() or import(). Exit code 1 where one can't be loaded.
'use strict';

const { spawnSync } = require('child_process');

// The text of this function runs in the process of its own. It answers on a descriptor of its own.
async function load() {
  const fs = require('fs');
  const path = require('path');
  const [name, way] = process.argv.slice(1);

  function answer(said) {
    fs.writeSync(3, said);
    process.exit(0);
  }

  // The error's code or type and its own words, on one line; where it was required from is ours.
  function words(error) {
    try {
      const said = String(error.message).split('\nRequire stack:')[0];
      return `${error.code || error.name}: ${said}`.replace(/\s+/g, ' ').slice(0, 2000);
    } catch {
      return 'it throws what is no error';
    }
  }

  // Nothing that a package does to be installed is done here: what that would make is missing.
  function hasInstallScript() {
    for (let at = process.cwd(); ; at = path.dirname(at)) {
      const place = path.join(at, 'node_modules', name);
      if (fs.existsSync(place)) {
        if (fs.existsSync(path.join(place, 'binding.gyp'))) return true;
        const { scripts = {} } = JSON.parse(fs.readFileSync(path.join(place, 'package.json'), 'utf8'));
        return ['preinstall', 'install', 'postinstall'].some((script) => scripts[script]);
      }
      if (at === path.dirname(at)) return false;
    }
  }

  try {
    if (way === 'import') await import(name);
    else require(name);
  } catch (error) {
    console.error(error);
    if (way !== 'import' && /^ERR_(REQUIRE_ESM|PACKAGE_PATH_NOT_EXPORTED)$/.test(error && error.code)) {
      await import(name).then(() => answer('it is an ES module, which only import() loads'), () => {});
    }
    answer((hasInstallScript() ? 'without its install script: ' : '') + words(error));
  }
  answer('\0');
}

function asked(name, folder, way, timeout) {
  const stdio = ['ignore', 'inherit', 'inherit', 'pipe'];
  const options = { cwd: folder, timeout, killSignal: 'SIGKILL', stdio };
  const done = spawnSync(process.execPath, ['-e', `(${load})()`, name, way], options);
  const said = done.output && done.output[3] ? done.output[3].toString() : '';
  if (said) return said;
  if (done.error) return done.error.code === 'ETIMEDOUT' ? '' : `${done.error.code}: ${folder}`;
  return `it ends the process, ${done.signal ? `by ${done.signal}` : `with exit code ${done.status}`}`;
}

const [limit, all] = process.argv.slice(1, 3).map((seconds) => Number(seconds) * 1000);
const list = JSON.parse(process.argv[3]);
const until = Date.now() + all;
for (const [at, [label, name, folder, way]] of list.entries()) {
  const left = Math.max(1, until - Date.now()); // 0 would be for ever
  let said = asked(name, folder, way, Math.min(limit, left));
  if (!said && left < limit) {
    console.log(`no time left for ${list.slice(at).map((one) => one[0]).join(', ')}`);
    break;
  }
  said = said || `it did not end within ${limit / 1000} s`;
  if (said !== '\0') {
    process.exitCode = 1;
    console.log(`cannot import ${label}: ${said}`);
  }
}
