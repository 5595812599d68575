"""Python: harmless modules of its standard library, built-in names, and members of its values."""

from fallback_tier.gates.capability.harmless import Harmless, modules, words

#: The library's top-level modules, of every version still in use, so that the interpreter's version does
#: not change a verdict.
_LIBRARY = words(
    """
    __builtin__ __future__ __main__ BaseHTTPServer CGIHTTPServer ConfigParser Cookie
    DocXMLRPCServer HTMLParser Queue SimpleHTTPServer SimpleXMLRPCServer SocketServer StringIO
    Tkinter UserDict UserList UserString abc aifc annotationlib antigravity anydbm argparse
    array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii binhex bisect
    builtins bz2 cPickle cProfile cStringIO calendar cgi cgitb chunk cmath cmd code codecs
    codeop collections colorsys commands compileall compiler compression concurrent configparser
    contextlib contextvars cookielib copy copy_reg copyreg crypt csv ctypes curses dataclasses
    datetime dbm decimal difflib dis distutils doctest dummy_threading email encodings ensurepip
    enum errno faulthandler fcntl filecmp fileinput fnmatch formatter fpectl fractions ftplib
    functools future_builtins gc genericpath getopt getpass gettext glob graphlib grp gzip
    hashlib heapq hmac hotshot htmlentitydefs html http httplib idlelib imaplib imghdr imp
    importlib ihooks imputil inspect io ipaddress itertools json keyword lib2to3 linecache
    locale logging lzma macpath mailbox mailcap marshal math md5 mimetools mimetypes mmap
    modulefinder msilib msvcrt multiprocessing mutex netrc nis nntplib nt ntpath nturl2path
    numbers opcode operator optparse os ossaudiodev parser pathlib pdb pickle pickletools pip
    pipes pkg_resources pkgutil platform plistlib poplib popen2 posix posixfile posixpath pprint
    profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re
    readline reprlib resource rexec rfc822 rlcompleter robotparser runpy sched secrets select
    selectors sets setuptools sgmllib sha shelve shlex shutil signal site sitecustomize smtpd
    smtplib sndhdr socket socketserver spwd sqlite3 sre sre_compile sre_constants sre_parse ssl
    stat statistics statvfs string stringprep struct subprocess sunau symbol symtable sys
    sysconfig syslog tabnanny tarfile telnetlib tempfile termios test textwrap this thread
    threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty turtle
    turtledemo types typing unicodedata unittest urllib urllib2 urlparse usercustomize uu uuid
    venv warnings wave weakref webbrowser whichdb winreg winsound wsgiref xdrlib xml xmlrpc
    xmlrpclib zipapp zipfile zipimport zlib zoneinfo
    """
)

_MODULES = """
__future__ abc argparse array ast base64 binascii bisect bz2 calendar cgi cmath codecs collections
collections.abc colorsys configparser contextlib contextvars copy csv dataclasses decimal difflib
email.charset email.encoders email.errors email.generator email.header email.headerregistry
email.message email.mime email.mime.application email.mime.audio email.mime.base email.mime.image
email.mime.message email.mime.multipart email.mime.text email.parser email.policy email.utils
encodings encodings.idna enum errno fcntl filecmp fnmatch fractions functools getopt getpass glob
graphlib grp gzip hashlib heapq hmac html html.entities html.parser http.cookies imghdr io ipaddress
itertools json json.decoder json.encoder keyword linecache locale lzma math mimetypes netrc ntpath
numbers optparse os.path pathlib plistlib posixpath pprint pwd queue quopri random re reprlib
resource sched secrets select selectors shlex shutil signal stat statistics stringprep struct
symtable syslog tarfile tempfile termios textwrap threading time token tokenize tomllib tracemalloc
types unicodedata urllib.error urllib.parse warnings wave weakref xml.dom.minidom xml.etree
xml.etree.ElementTree xml.etree.cElementTree xml.parsers.expat xml.sax.saxutils zipfile zlib
zoneinfo compression compression.bz2 compression.gzip compression.lzma compression.zlib
compression.zstd StringIO cStringIO ConfigParser Cookie HTMLParser Queue UserDict UserList
htmlentitydefs md5 sets sha sre_constants sre_parse urlparse _thread thread traceback
distutils.version email.Header email.Utils
asyncio: AbstractEventLoop Abstract*Policy BoundedSemaphore CancelledError Condition Event Future
asyncio: FIRST_* ALL_* Handle IncompleteReadError InvalidStateError LifoQueue LimitOverrunError Lock
asyncio: PriorityQueue Queue* Runner Semaphore StreamReader StreamWriter Task TaskGroup Timeout*
asyncio: TimerHandle all_tasks as_completed create_task current_task ensure_future gather
asyncio: get_event_loop get_running_loop iscoroutine* new_event_loop run run_coroutine_threadsafe
asyncio: set_event_loop shield sleep timeout* to_thread wait wait_for BaseTransport Transport
asyncio: ReadTransport WriteTransport Protocol BaseProtocol DatagramProtocol coroutine
concurrent.futures: ALL_* FIRST_* CancelledError Executor Future ThreadPoolExecutor TimeoutError
concurrent.futures: as_completed wait
datetime: * time
email: message_from_* charset errors header message policy utils
gettext: gettext ngettext pgettext npgettext dgettext translation install find bindtextdomain
gettext: textdomain
http: HTTPStatus HTTPMethod
importlib: metadata resources
importlib.machinery: *_SUFFIXES all_suffixes
importlib.util: find_spec resolve_name cache_from_source source_from_cache MAGIC_NUMBER
importlib.metadata: PackageNotFoundError version metadata
importlib.resources: files as_file read_text read_binary open_text open_binary path
inspect: is* cleandoc getdoc getfile getfullargspec getargspec getmembers getmro getsource*
inspect: getsourcefile Parameter Signature BoundArguments unwrap signature CO_* ismethod
logging: BASIC_FORMAT BufferingFormatter CRITICAL DEBUG ERROR FATAL FileHandler Filter Filterer
logging: Formatter Handler INFO LogRecord Logger LoggerAdapter Manager NOTSET NullHandler
logging: PlaceHolder RootLogger StreamHandler WARN WARNING addLevelName basicConfig captureWarnings
logging: critical debug disable error exception fatal getLevelName getLevelNamesMapping getLogger
logging: getLoggerClass getLogRecordFactory info lastResort log root setLoggerClass
logging: setLogRecordFactory shutdown warn warning
operator: * attrgetter itemgetter
os: DirEntry EX_* F_OK O_* P_* PathLike R_OK SEEK_* W_OK X_OK WEXITSTATUS WIF* access
os: altsep chdir chmod chown chroot close closerange cpu_count ctermid curdir defpath devnull dup
os: dup2 environ environb error errno extsep fchdir fchmod fchown fdatasync fdopen fsdecode fsencode
os: fspath fstat fsync ftruncate fwalk get* initgroups isatty lchmod lchown linesep link
os: linux_distribution listdir listxattr lseek lstat makedirs major makedev minor mkdir mkfifo name
os: nice open pardir path pathsep pipe pread pwrite read readlink remove removedirs rename renames
os: replace rmdir scandir sched_getaffinity sendfile sep set_blocking set_inheritable stat
os: stat_result statvfs strerror supports_* symlink sync terminal_size times truncate umask uname
os: unlink urandom utime wait waitpid walk write
marshal: dump dumps
pickle: dump dumps *PROTOCOL *Error Pickler
timeit: default_timer
pkgutil: extend_path get_data iter_modules
platform: architecture freedesktop_os_release java_ver libc_ver linux_distribution mac_ver machine
platform: node platform processor python_* release system uname version win32_ver
random: * random
re: Match Pattern RegexFlag *
shutil: * copy
sqlite3: * connect
ssl: SSLContext SSLError *Error CERT_* OP_* PROTOCOL_* TLSVersion VERIFY_* HAS_* OPENSSL_* Purpose
ssl: AlertDescription create_default_context match_hostname DER_cert_to_PEM_cert
ssl: PEM_cert_to_DER_cert get_default_verify_paths
string: Template ascii_* capwords digits hexdigits letters lowercase octdigits printable punctuation
string: uppercase whitespace maketrans replace join lower upper strip split
sys: api_version argv base_exec_prefix base_prefix byteorder copyright exc_clear exc_info exception
sys: exec_prefix exit flags float_info float_repr_style get*encoding getfilesystemencodeerrors
sys: getrecursionlimit getrefcount getsizeof getwindowsversion hash_info hexversion implementation
sys: int_info intern is_finalizing long_info maxint maxsize maxunicode platform prefix
sys: setdefaultencoding setrecursionlimit *_int_max_str_digits stdlib_module_names std* thread_info
sys: version* warnoptions __std*__ builtin_module_names executable
time: * time
types: *Type ModuleType SimpleNamespace MappingProxyType TracebackType coroutine get_original_bases
typing: [A-Z]* cast overload no_type_check runtime_checkable final get_args get_origin is_typeddict
typing: assert_* dataclass_transform override reveal_type io re
urllib: quote quote_plus unquote unquote_plus urlencode pathname2url url2pathname splittype
urllib: splithost
uuid: UUID NAMESPACE_* RESERVED_* RFC_* SafeUUID getnode uuid[1-8] NIL MAX
xml.sax: SAX*Exception
"""

#: Built-in names without an effect outside the process. ``eval`` and the like are in ``tables.py``.
_ROOTS = words(
    """
    False None True NotImplemented Ellipsis abs aiter all anext any apply ascii basestring bin
    bool buffer bytearray bytes callable chr classmethod cmp coerce complex copyright delattr
    dict dir divmod enumerate exit file filter float format frozenset getattr globals hasattr
    hash hex id input int intern isinstance issubclass iter len license list locals long map max
    memoryview min next object oct open ord pow print property quit range raw_input reduce
    reload repr reversed round set setattr slice sorted staticmethod str sum super tuple type
    unichr unicode vars xrange zip __name__ __file__ __doc__ __package__ __path__ __class__
    __debug__ __all__ __version__ __annotations__ __module__ __qualname__ __dict__ _ self cls
    """
)

#: Members of its values of which a call has no effect outside the process. Every public member of the
#: built-in types and of the objects that its modules create (paths, dates, matches, loggers, archives, …),
#: as ``dir`` lists them, without those that run or return code (``run``, ``compile``, ``gi_frame``). Such a
#: name may also be another object's: ADR-0057 says what that misses.
_MEMBERS = words(
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

PYTHON = Harmless(
    modules=modules(_MODULES),
    library=_LIBRARY,
    roots=_ROOTS,
    members=_MEMBERS,
    carries=True,
)
