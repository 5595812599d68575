"""Members of the languages' own values: what a call of one does stays inside the process.

``"".strip``, ``{}.items``, ``/x/.test``: of Python, every public member of the built-in types and of the
values that modules of ``harmless_python.py`` make (paths, dates, matches, loggers, archives, …), as ``dir``
tells them; of JavaScript, those of the global prototypes, of node's events, streams and buffers, and of its
harmless modules (``fs``, ``path``, ``crypto``, …), as ``Object.getOwnPropertyNames`` does. Left out is what
runs or hands on code: ``run``, ``compile``, ``gi_frame``, ``constructor``. Such a name may also be another
object's: ADR-0057 says what that misses.
"""

from fallback_tier.gates.capability.harmless import words

PYTHON = words(
    """
    CRC FileHeader OutputString absolute acquire acquire_lock add addFilter addHandler
    add_argument add_argument_group add_done_callback add_header add_mutually_exclusive_group
    add_note add_subparsers address_exclude adjusted anchor append appendleft args as_bytes
    as_integer_ratio as_posix as_string as_tuple as_uri astimezone attach attrib bit_count
    bit_length block_size blocksize broadcast_address buffer bytes bytes_le c_contiguous
    callback cancel cancelled canonical capitalize casefold cast center characters_written
    chksum chmod clear clock_seq clock_seq_hi_variant clock_seq_low close closed coded_value
    combine comment compare compare_networks compare_signal compare_total compare_total_mag
    compressed conjugate contiguous convert_arg_line_to_args copy copy_abs copy_negate copy_sign
    count critical ctime cwd daemon date day days debug decode default_factory del_param deleter
    denominator detach dialect difference difference_update digest digest_size discard done
    drive dst elements empty encode encoding end endpos endswith enter_context errno error
    errors exception exists exit exp expand expandtabs expanduser exploded extend extendleft
    extra extract extract_version extractall f_contiguous fatal fdel fget fieldnames fields
    file_size filename filename2 fileno filter find findCaller findall finditer findtext flags
    flush fma fold format format_help format_map format_usage fp fragment from_bytes
    from_decimal from_file from_float frombuf fromhex fromisocalendar fromisoformat fromkeys
    fromordinal fromtarfile fromtimestamp fset full fullmatch get getChild getEffectiveLevel
    getName get_all get_boundary get_charset get_charsets get_content_charset
    get_content_disposition get_content_maintype get_content_subtype get_content_type
    get_default get_default_type get_filename get_info get_loop get_nowait get_param get_params
    get_payload get_unixfrom getbuffer getinfo getter geturl getvalue gid glob gname group
    groupdict groupindex groups hardlink_to hasHandlers hex hexdigest home hostmask hostname
    hosts hour ident imag index indices info infolist insert int intersection
    intersection_update isDaemon isEnabledFor isReservedKey isSet is_absolute is_alive
    is_block_device is_canonical is_char_device is_dir is_fifo is_file is_finite is_global
    is_infinite is_integer is_link_local is_loopback is_mount is_multicast is_multipart is_nan
    is_normal is_private is_qnan is_relative_to is_safe is_set is_signed is_site_local is_snan
    is_socket is_subnormal is_symlink is_unspecified is_zero isalnum isalpha isascii isatty
    isblk ischr isdecimal isdev isdigit isdir isdisjoint isfifo isfile isidentifier islnk
    islower isnumeric isocalendar isoformat isoweekday isprintable isreg isspace issparse
    issubset issuperset issym istitle isupper items itemsize iter iterdir iterfind itertext join
    joinpath js_output key keys lastgroup lastindex lchmod limit_denominator line_buffering
    link_to linkname linkpath ljust ln locked locked_lock log log10 logb logical_and
    logical_invert logical_or logical_xor lower lstat lstrip makeelement maketrans manager match
    max max_mag max_prefixlen maxlen microsecond microseconds min min_mag minute mkdir mode
    month most_common move_to_end mtime name namelist native_id nbytes ndim netloc new_child
    newlines next_minus next_plus next_toward node normalize notify notifyAll notify_all now
    num_addresses number_class numerator obj offset offset_data open orig_filename output
    overlaps owner packed params parent parents parse_args parse_intermixed_args
    parse_known_args parse_known_intermixed_args partition parts password path pattern
    pax_headers peek pop pop_all popitem popleft port pos prefixlen print_help print_usage
    printdir push put put_nowait qsize quantize query radix raw raw_items re read read1
    read_bytes read_text readable readinto readinto1 readline readlines readlink readonly real
    reconfigure regs relative_to release release_lock remainder_near remove removeFilter
    removeHandler remove_done_callback removeprefix removesuffix rename replace replace_header
    reserved resolution resolve result reverse reverse_pointer rfind rglob rindex rjust rmdir
    root rotate rpartition rsplit rstrip same_quantum samefile scaleb scanner scheme scope_id
    search second seconds seek seekable send set setDaemon setLevel setName set_boundary
    set_charset set_default_type set_defaults set_exception set_param set_payload set_raw
    set_result set_type set_unixfrom setdefault setpassword setter shape shift sixtofour size
    sort span sparse split splitlines sqrt start startswith stat stem step stop strerror
    strftime strides string strip strptime sub subn subnet_of subnets suboffsets subtract suffix
    suffixes supernet supernet_of swapcase symlink_to symmetric_difference
    symmetric_difference_update tag tail tarfile task_done tell teredo testzip text throw time
    time_hi_version time_low time_mid timestamp timetuple timetz title to_bytes to_eng_string
    to_integral to_integral_exact to_integral_value tobuf tobytes today tolist toordinal
    toreadonly total total_seconds touch translate truncate type tzinfo tzname uid uname union
    unlink update upper urn username utcfromtimestamp utcnow utcoffset utctimetuple value values
    variant version volume wait wait_for walk warn warning weekday with_hostmask with_name
    with_netmask with_prefixlen with_stem with_suffix with_traceback writable write write_bytes
    write_text write_through writelines writerow writerows writestr year zfill
    """
)

JAVASCRIPT = words(
    """
    abort aborted abs access accessSync acos acosh add addAbortListener addEventListener
    addListener all allSettled alloc allocUnsafe allocUnsafeSlow anchor and any append
    appendFile appendFileSync apply arch asIndexedPairs asIntN asUintN asin asinh assert assign
    asyncDispose asyncIterator at atan atan2 atanh availableParallelism basename big bind blink
    bold brotliCompress brotliCompressSync brotliDecompress brotliDecompressSync bubbles buffer
    byteLength byteOffset call callbackify canParse cancelBubble cancelable
    captureRejectionSymbol captureRejections captureStackTrace catch cbrt ceil charAt charCodeAt
    checkPrime checkPrimeSync chmod chmodSync chown chownSync clear close closeSync closed clz32
    codePointAt compare compareExchange compose composed composedPath concat constants context
    copy copyBytesFrom copyFile copyFileSync copyWithin cork cos cosh count countReset cp cpSync
    cpus crc32 create createBrotliCompress createBrotliDecompress createCipheriv
    createDecipheriv createDeflate createDeflateRaw createDiffieHellman createDiffieHellmanGroup
    createECDH createGunzip createGzip createHash createHmac createInflate createInflateRaw
    createObjectURL createPrivateKey createPublicKey createReadStream createSecretKey createSign
    createTask createUnzip createVerify createWriteStream currentTarget debug debuglog decode
    deepEqual deepStrictEqual defaultMaxListeners defaultPrevented defineProperties
    defineProperty deflate deflateRaw deflateRawSync deflateSync delete deprecate description
    destroy destroyed diffieHellman digest dir dirname dirxml dispatchEvent dispose doesNotMatch
    doesNotReject doesNotThrow domainToASCII domainToUnicode dotAll drop emit encode encodeInto
    encoding end endianness endsWith entries equal equals error errorMonitor errored escape
    eventNames eventPhase every exchange exec exists existsSync exp expm1 extname fail fatal
    fchmod fchmodSync fchown fchownSync fdatasync fdatasyncSync fileURLToPath fill filter
    finally find findIndex findLast findLastIndex fixed flags flat flatMap floor fontcolor
    fontsize for forEach format formatWithOptions freemem freeze from fromCharCode fromCodePoint
    fromEntries fromWeb fround fstat fstatSync fsync fsyncSync ftruncate ftruncateSync futimes
    futimesSync generateKey generateKeyPair generateKeyPairSync generateKeySync generatePrime
    generatePrimeSync get getAll getCanonicalLocales getCipherInfo getCiphers getCurves getDate
    getDay getDiffieHellman getEventListeners getFips getFullYear getHashes getHours
    getMaxListeners getMilliseconds getMinutes getMonth getOwnPropertyDescriptor
    getOwnPropertyDescriptors getOwnPropertyNames getOwnPropertySymbols getPriority
    getPrototypeOf getRandomValues getSeconds getSetCookie getSystemErrorMap getSystemErrorName
    getTime getTimezoneOffset getYear global group groupCollapsed groupEnd gunzip gunzipSync
    gzip gzipSync has hasIndices hasInstance hasOwn hasOwnProperty hash hkdf hkdfSync homedir
    host hostname href hypot ifError ignoreBOM ignoreCase imul includes indexOf inflate
    inflateRaw inflateRawSync inflateSync info inherits init initEvent input inspect is
    isAbsolute isArray isBoolean isBuffer isConcatSpreadable isDate isDeepStrictEqual isEncoding
    isError isExtensible isFile isFinite isFrozen isFunction isInteger isLockFree isNaN isNull
    isNullOrUndefined isNumber isObject isPaused isPrimitive isPrototypeOf isRegExp
    isSafeInteger isSealed isString isSymbol isTrusted isUndefined isView isWellFormed italics
    iterator join kMaxEventTargetListeners kMaxEventTargetListenersWarned keyFor keys
    lastIndexOf lastMatch lastParen lchmod lchown lchownSync leftContext link linkSync
    listenerCount listeners load loadavg localeCompare log log10 log1p log2 lstat lstatSync
    lutimes lutimesSync machine map match matchAll matchesGlob max maxByteLength message min
    mkdir mkdirSync mkdtemp mkdtempSync multiline networkInterfaces next normalize notDeepEqual
    notDeepStrictEqual notEqual notStrictEqual notify now of off offset ok on onabort once open
    openAsBlob openSync opendir opendirSync or origin padEnd padStart parent parse parseArgs
    parseEnv parseFloat parseInt password pathToFileURL pathname pause pbkdf2 pbkdf2Sync pipe
    platform poolSize pop port pow prepareStackTrace prependListener prependOnceListener
    preventDefault preventExtensions privateDecrypt privateEncrypt profile profileEnd promisify
    propertyIsEnumerable protocol publicDecrypt publicEncrypt push race random randomBytes
    randomFill randomFillSync randomInt randomUUID raw rawListeners read readFile readFileSync
    readSync readable readableAborted readableBuffer readableDidRead readableEncoding
    readableEnded readableFlowing readableHighWaterMark readableLength readableObjectMode
    readdir readdirSync readlink readlinkSync readv readvSync realpath realpathSync reason
    reduce reduceRight reject rejects relative release removeAllListeners removeEventListener
    removeListener rename renameSync repeat replace replaceAll resizable resize resolve
    resolveObject resume return returnValue reverse revokeObjectURL rightContext rm rmSync rmdir
    rmdirSync round scrypt scryptSync seal search searchParams secureHeapUsed set setDate
    setDefaultEncoding setEncoding setEngine setFips setFullYear setHours setMaxListeners
    setMilliseconds setMinutes setMonth setPrototypeOf setSeconds setTime setYear shift sign
    signal sin sinh size slice small some sort source species splice split sqrt srcElement
    stackTraceLimit startsWith stat statSync statfs statfsSync sticky stopImmediatePropagation
    stopPropagation store strict strictEqual strike stringify stripVTControlCharacters styleText
    sub subarray substr substring sup supportedValuesOf swap16 swap32 swap64 symlink symlinkSync
    table take tan tanh target test then throw throwIfAborted throws time timeEnd timeLog
    timeStamp timeout timingSafeEqual tmpdir toArray toDateString toExponential toFixed
    toGMTString toISOString toJSON toLocaleDateString toLocaleLowerCase toLocaleString
    toLocaleTimeString toLocaleUpperCase toLowerCase toNamespacedPath toPrecision toPrimitive
    toReversed toSorted toSpliced toString toStringTag toTimeString toUSVString toUTCString
    toUpperCase toWeb toWellFormed totalmem trace transferableAbortController
    transferableAbortSignal trim trimEnd trimLeft trimRight trimStart trunc truncate
    truncateSync type uncork unescape unescapeBuffer unicode unicodeSets unlink unlinkSync
    unpipe unscopables unshift unwatchFile unzip unzipSync update uptime urlToHttpOptions
    userInfo username usingDomains utimes utimesSync valueOf values verify version wait
    waitAsync warn watch watchFile with wrap writable writableAborted writableBuffer
    writableCorked writableEnded writableFinished writableHighWaterMark writableLength
    writableNeedDrain writableObjectMode write writeFile writeFileSync writeSync writev
    writevSync xor
    """
)
