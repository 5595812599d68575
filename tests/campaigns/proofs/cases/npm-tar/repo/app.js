const tar = require('tar');

// Restores a backup into a folder.
exports.restore = (file, folder) => tar.x({ file, cwd: folder });
