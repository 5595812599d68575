const AdmZip = require('adm-zip');

// Unpacks an uploaded archive (a Buffer) into a folder.
exports.unpack = (archive, folder) => new AdmZip(archive).extractAllTo(folder, true);
