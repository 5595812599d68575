const { execSync } = require('node:child_process');
const { quote } = require('shell-quote');

// What the shell makes of one word that a user gave.
exports.say = (word) => execSync(`echo ${quote([word])}`, { encoding: 'utf8', stdio: 'pipe' }).trim();
