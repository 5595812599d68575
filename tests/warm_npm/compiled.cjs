// Called before npm is loaded, whose path is process.argv[1]: npm's modules are compiled, and looked for, once in a
// run of the tests. What npm runs, and in which order, stays what it is.
//
// What is kept lies in two files a subcommand, in a folder of the run: nothing of it can be old. A run that loads
// modules which are in none says so; the next one compiles all of them as one script, and keeps what V8 made of what
// was run.
'use strict'
const fs = require('node:fs')
const Module = require('node:module')
const path = require('node:path')
const vm = require('node:vm')

module.exports = function (folder) {
  const npm = path.join(fs.realpathSync(process.argv[1]), '../../')
  if (process.argv.slice(2).join() === '--version') {
    // Asked before each install: npm would load its settings first, and then print the same.
    console.log(require(path.join(npm, 'package.json')).version)
    process.exit()
  }
  const verb = process.argv.slice(2).find((word) => /^[a-z-]+$/.test(word)) ?? 'none'
  const text = path.join(folder, verb)
  const found = new Map() // file of a module → its text, of those that are not in the script
  let kept = { files: [], places: {}, body: '' } // places: folder, NUL and what is required there → file of the module
  let script // all of these modules together
  let made = new Map() // file of a module → its function
  let isLarger = false
  let isNew = false

  // The first line is what else is known; the rest is the script: Latin-1, or V8 would take two bytes a letter.
  function read() {
    const all = fs.readFileSync(text, 'latin1')
    const end = all.indexOf('\n')
    const known = { ...JSON.parse(all.slice(0, end)), body: all.slice(end + 1) }
    const data = dataOf(known)
    const cachedData = fs.existsSync(data) ? fs.readFileSync(data) : undefined
    script = new vm.Script(`[${known.body}]`, { filename: text, cachedData })
    isNew = !cachedData || script.cachedDataRejected
    const functions = script.runInThisContext()
    made = new Map(known.files.map((file, number) => [file, functions[number]]))
    kept = known
  }

  // V8 itself knows a script by its length alone.
  const dataOf = (known) => `${text}.${known.id}`

  function replace(file, content, encoding) {
    const temporary = `${file}.part-${process.pid}`
    fs.writeFileSync(temporary, content, encoding)
    fs.renameSync(temporary, file) // others are reading it
  }

  function write() {
    if (!isLarger) return replace(dataOf(kept), script.createCachedData())
    const functions = [...found.values()].map((content) => Module.wrap(content.replace(/^#!.*/, '')).replace(/;$/, ''))
    const id = `${process.pid}-${process.hrtime.bigint()}`
    const head = JSON.stringify({ id, files: [...kept.files, ...found.keys()], places: kept.places })
    replace(text, `${head}\n${kept.body}${functions.map((one) => `${one},\n`).join('')}`, 'latin1')
  }

  try {
    read()
  } catch {
    script = undefined // the first of its subcommand
    made.clear()
  }

  function run(module, filename) {
    const folder = path.dirname(filename)
    const require = (name) => {
      const file = kept.places[`${folder}\0${name}`]
      if (file === undefined) return module.require(name)
      const cached = Module._cache[file]
      if (cached) return cached.exports
      if (!made.has(file)) return module.require(name)
      const required = new Module(file, module)
      required.filename = file
      required.paths = Module._nodeModulePaths(path.dirname(file))
      Module._cache[file] = required
      let isRun = false
      try {
        run(required, file)
        isRun = true
      } finally {
        if (!isRun) delete Module._cache[file]
      }
      required.loaded = true
      return required.exports
    }
    require.resolve = (name, options) => Module._resolveFilename(name, module, false, options)
    require.resolve.paths = (name) => Module._resolveLookupPaths(name, module)
    require.main = process.mainModule
    require.extensions = Module._extensions
    require.cache = Module._cache
    made.get(filename).call(module.exports, module.exports, require, module, filename, folder)
  }

  const resolve = Module._resolveFilename
  Module._resolveFilename = function (name, parent, isMain, options) {
    if (options || path.isAbsolute(name) || !parent?.filename?.startsWith(npm))
      return resolve.call(this, name, parent, isMain, options)
    const key = `${path.dirname(parent.filename)}\0${name}`
    if (Object.hasOwn(kept.places, key)) return kept.places[key]
    const file = resolve.call(this, name, parent, isMain, options)
    if (file.startsWith(npm)) {
      kept.places[key] = file
      isLarger = true
    }
    return file
  }

  const load = Module._extensions['.js']
  Module._extensions['.js'] = function (module, filename) {
    if (made.has(filename)) run(module, filename)
    else load(module, filename)
  }

  const compile = Module.prototype._compile
  Module.prototype._compile = function (content, filename, ...more) {
    // V8 forgets, in what it keeps, how `import()` finds its modules.
    if (filename.startsWith(npm) && more[0] !== 'module' && !/\bimport\s*\(|[^\0-\xff]/.test(content)) {
      found.set(filename, content)
      isLarger = true
    }
    return compile.call(this, content, filename, ...more)
  }

  process.on('exit', () => {
    try {
      if (isLarger || isNew) write()
    } catch {
      // The next one begins anew.
    }
  })
}
