'use strict';

const { execSync, execFileSync } = require('node:child_process');

/** The first number in the output of wc. */
function parseCount(output) {
  return parseInt(output.trim().split(/\s+/)[0], 10);
}

/** How many lines a file has. Throws where there is no such file. */
function countLines(file) {
  const output = execSync(`wc -l ${file}`, { encoding: 'utf8', stdio: 'pipe' });
  return parseCount(output);
}

/** The lines of each file, by its name. */
function countAll(files) {
  const counts = {};
  for (const file of files) {
    counts[file] = countLines(file);
  }
  return counts;
}

/** The version of wc that is used. */
function toolVersion() {
  return execFileSync('wc', ['--version'], { encoding: 'utf8' }).split('\n')[0];
}

module.exports = { countLines, countAll, toolVersion };
