// Loaded before anything else in each node of a test run (NODE_OPTIONS), whatever called it: a client's script, a
// wrapper, another node. If this process is a test runner's, it is made to report each test in a file of its own; and,
// if files are named, to run their tests alone.
"use strict";
const { spawnSync } = require("child_process");
const fs = require("fs");
const Module = require("module");
const path = require("path");
const { isMainThread } = require("worker_threads");

const prefix = process.env.FALLBACK_TIER_REPORTS;
const place = `${prefix}-${process.pid}`;
let isTaken = !prefix || !isMainThread;

// Files whose tests alone are run, by whole paths: of those named, what is there and below the folder in which this
// process starts. undefined: all are run.
const named = process.env.FALLBACK_TIER_FILES;
const chosen =
  named &&
  JSON.parse(named)
    .map((file) => path.join(path.dirname(prefix || ""), file))
    .filter((file) => file.startsWith(process.cwd() + path.sep) && fs.existsSync(file));

// The file is there from now on: a runner was asked. What this process starts is a part of it, or one of its tests.
function take() {
  isTaken = true;
  fs.appendFileSync(place, "");
  delete process.env.FALLBACK_TIER_REPORTS;
  delete process.env.FALLBACK_TIER_FILES;
  if (chosen && !chosen.length) leave();
}

// Without a file a runner would run all: this one has nothing to run.
function leave() {
  fs.appendFileSync(place, `${JSON.stringify({ told: 0, ran: 0, failed: 0 })}\n`);
  process.exit(0);
}

// The package whose program this process runs: its name, its folder.
function owner(file) {
  const plain = (name) => name.replace(/\.[cm]?js$/, "");
  for (let folder = path.dirname(file); folder !== path.dirname(folder); folder = path.dirname(folder)) {
    try {
      const { name, bin } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
      if (!name) continue;
      const programs = typeof bin === "string" ? [bin] : Object.values(bin || {});
      const isProgram = programs.some((one) => plain(path.resolve(folder, one)) === plain(file));
      return isProgram ? { name, folder } : undefined;
    } catch {
      // No manifest, or none that can be read.
    }
  }
  return undefined;
}

const has = (pattern) => process.argv.slice(2).some((word) => pattern.test(word));
const append = (...words) => {
  const end = process.argv.indexOf("--");
  process.argv.splice(end < 0 ? process.argv.length : end, 0, ...words);
};

const RUNNERS = {
  jest() {
    if (has(/^--(json|outputFile)\b/)) return;
    take();
    append("--json", `--outputFile=${place}`, "--bail=0");
    if (chosen) append("--passWithNoTests", "--runTestsByPath", ...chosen);
  },
  vitest() {
    if (has(/^--outputFile\b/) || has(/^(bench|list|init)$/)) return;
    take();
    if (chosen) filterVitest();
    const own = has(/^--reporter\b/) ? [] : ["--reporter=default"];
    append(...own, "--reporter=json", `--outputFile.json=${place}`, "--bail=0");
  },
  mocha(folder) {
    take();
    Object.assign(process.env, { FALLBACK_TIER_REPORT: place, FALLBACK_TIER_MOCHA: folder });
    append("--reporter", path.join(__dirname, "mocha.cjs"));
    if (chosen) filterMocha(require(folder));
  },
};
RUNNERS["jest-cli"] = RUNNERS.jest;

// vitest runs what any of its filters matches: the project's own would add to the chosen files.
function filterVitest() {
  const own = process.argv.slice(2);
  const kept = own.filter((word, at) => {
    const isValue = at > 0 && own[at - 1].startsWith("-") && !own[at - 1].includes("=");
    return word.startsWith("-") || isValue || (at === 0 && /^(run|watch|dev)$/.test(word));
  });
  process.argv.splice(2, own.length, ...kept);
  append("--passWithNoTests", ...chosen);
}

// mocha runs what its options name and what its settings name: files are left out once it has found them all, but for
// those that prepare the others (--file).
function filterMocha(Mocha) {
  const wanted = new Set(chosen);
  for (const name of ["loadFiles", "loadFilesAsync", "run"]) {
    const own = Mocha.prototype[name];
    Mocha.prototype[name] = function (...values) {
      const before = [].concat(this.options.file || []).map((file) => path.resolve(file));
      this.files = this.files.map((file) => path.resolve(file)).filter((it) => wanted.has(it) || before.includes(it));
      return own.apply(this, values);
    };
  }
}

// Lines of a report (fallback_plugins.shared.gates.reports).
function teller() {
  const seen = new Map();
  let told = 0;
  const put = (line) => fs.appendFileSync(place, `${JSON.stringify(line)}\n`);
  const folder = path.relative(path.dirname(place), process.cwd());
  return {
    tell(title, was) {
      const name = folder ? `${folder} > ${title}` : title;
      let times = (seen.get(name) || 0) + 1;
      let unique = times === 1 ? name : `${name} (${times})`;
      // Another may be called as this one is numbered.
      while (times > 1 && seen.has(unique)) unique = `${name} (${++times})`;
      seen.set(unique, 1);
      seen.set(name, times);
      told += 1;
      put({ test: unique, was });
    },
    end: (ran, failed) => put({ told, ran, failed }),
  };
}

// What jasmine's own reporter counts: failed specs, and errors of suites.
function jasmineReporter() {
  const { tell, end } = teller();
  let ran = 0;
  let failed = 0;
  return {
    specDone({ fullName, status }) {
      if (status === "passed" || status === "failed") ran += 1;
      if (status === "failed") failed += 1;
      if (status !== "excluded") tell(fullName, status === "pending" ? "skipped" : status);
    },
    suiteDone({ fullName, failedExpectations = [] }) {
      if (!failedExpectations.length) return;
      failed += 1;
      tell(`${fullName} (outside its tests)`, "failed");
    },
    jasmineDone({ failedExpectations = [] } = {}) {
      for (const { message } of failedExpectations) tell(`(outside any test) ${message}`, "failed");
      end(ran, failed + failedExpectations.length);
    },
  };
}

// Libraries by which a program of the project's own, or a wrapper, runs tests.
const LIBRARIES = {
  "jasmine-core"(core) {
    for (const name of ["boot", "noGlobals"]) {
      const own = core[name];
      if (typeof own !== "function") continue;
      core[name] = function (...values) {
        const made = own.apply(this, values);
        if (!isTaken) {
          take();
          if (chosen) leave(); // its files are its caller's to choose
          (made.jasmine || made).getEnv().addReporter(jasmineReporter());
        }
        return made;
      };
    }
    return core;
  },
  "@jest/core"(core) {
    return new Proxy(core, {
      get(target, name) {
        if (name !== "runCLI" || isTaken) return target[name];
        return (options, ...others) => {
          if (options.json || options.outputFile) return target.runCLI(options, ...others);
          take();
          const only = chosen ? { _: chosen, runTestsByPath: true, passWithNoTests: true } : {};
          return target.runCLI({ ...options, json: true, outputFile: place, bail: 0, ...only }, ...others);
        };
      },
    });
  },
};

// The chosen files of those that node's own runner was asked for, by the fixed beginnings of its patterns.
function inPatterns(patterns) {
  const folders = patterns.map((one) => path.resolve(one.split(/[*?[{(]/)[0]));
  const files = patterns.length ? chosen.filter((file) => folders.some((it) => file.startsWith(it))) : chosen;
  if (!files.length) leave();
  return files;
}

// node's own runner takes its reporters from the command line alone: it is started again, with ours.
function nodeTest() {
  const given = (option) => process.execArgv.filter((word) => new RegExp(`^${option}(=|$)`).test(word)).length;
  const [reporters, destinations] = ["--test-reporter", "--test-reporter-destination"].map(given);
  if (/--test-reporter/.test(process.env.NODE_OPTIONS) || (reporters !== destinations && reporters !== 1)) return;
  take();
  const options = reporters ? [] : ["--test-reporter=tap"];
  if (reporters !== destinations || !reporters) options.push("--test-reporter-destination=stdout");
  options.push(`--test-reporter=${path.join(__dirname, "node.mjs")}`, `--test-reporter-destination=${place}`);
  const words = [...process.execArgv, ...options, ...(chosen ? inPatterns(process.argv.slice(1)) : process.argv.slice(1))];
  const { status, signal } = spawnSync(process.execPath, words, { stdio: "inherit" });
  if (signal) process.kill(process.pid, signal);
  process.exit(status === null ? 1 : status);
}

if (!isTaken) {
  const { _load } = Module;
  const changed = new Map();
  Module._load = function (request, ...others) {
    const loaded = _load.call(this, request, ...others);
    if (!Object.hasOwn(LIBRARIES, request)) return loaded;
    if (!changed.has(loaded)) changed.set(loaded, LIBRARIES[request](loaded));
    return changed.get(loaded);
  };
  if (process.execArgv.includes("--test") && !process.env.NODE_TEST_CONTEXT) {
    nodeTest();
  } else if (process.argv[1]) {
    try {
      const file = fs.realpathSync(process.argv[1]);
      const found = owner(file);
      if (found && Object.hasOwn(RUNNERS, found.name)) RUNNERS[found.name](found.folder);
    } catch {
      // No file is run.
    }
  }
}
