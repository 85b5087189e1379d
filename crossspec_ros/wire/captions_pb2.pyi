from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Up(_message.Message):
    __slots__ = ("session", "hello", "frame", "ask", "cancel", "close")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    session: int
    hello: Hello
    frame: Frame
    ask: Ask
    cancel: Cancel
    close: Close
    def __init__(self, session: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "robot", "period_ns", "phase_ns")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROBOT_FIELD_NUMBER: _ClassVar[int]
    PERIOD_NS_FIELD_NUMBER: _ClassVar[int]
    PHASE_NS_FIELD_NUMBER: _ClassVar[int]
    version: int
    robot: str
    period_ns: int
    phase_ns: int
    def __init__(self, version: _Optional[int] = ..., robot: _Optional[str] = ..., period_ns: _Optional[int] = ..., phase_ns: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("stamp_ns", "height", "width", "compressed", "data")
    STAMP_NS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    stamp_ns: int
    height: int
    width: int
    compressed: bool
    data: bytes
    def __init__(self, stamp_ns: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., compressed: bool = ..., data: _Optional[bytes] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("number", "question", "max_new_tokens", "temperature", "top_p", "seed", "hint", "stamps_ns")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    STAMPS_NS_FIELD_NUMBER: _ClassVar[int]
    number: int
    question: str
    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int
    hint: str
    stamps_ns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., question: _Optional[str] = ..., max_new_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., hint: _Optional[str] = ..., stamps_ns: _Optional[_Iterable[int]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Close(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Down(_message.Message):
    __slots__ = ("session", "welcome", "piece", "refused")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    session: int
    welcome: Welcome
    piece: Piece
    refused: Refused
    def __init__(self, session: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("frames", "frames_per_unit", "image_size", "frame_tokens", "most_tokens", "vocabulary", "phase_ns")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    FRAMES_PER_UNIT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FRAME_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MOST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    PHASE_NS_FIELD_NUMBER: _ClassVar[int]
    frames: int
    frames_per_unit: int
    image_size: int
    frame_tokens: int
    most_tokens: int
    vocabulary: int
    phase_ns: int
    def __init__(self, frames: _Optional[int] = ..., frames_per_unit: _Optional[int] = ..., image_size: _Optional[int] = ..., frame_tokens: _Optional[int] = ..., most_tokens: _Optional[int] = ..., vocabulary: _Optional[int] = ..., phase_ns: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("number", "token_ids", "text", "ended", "tokens_read", "rows", "most_read", "seconds", "drafted", "accepted", "since_asked_s", "passes")
    class DraftedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class AcceptedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_READ_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MOST_READ_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    SINCE_ASKED_S_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    number: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    text: str
    ended: bool
    tokens_read: int
    rows: int
    most_read: int
    seconds: float
    drafted: _containers.ScalarMap[str, int]
    accepted: _containers.ScalarMap[str, int]
    since_asked_s: float
    passes: int
    def __init__(self, number: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., ended: bool = ..., tokens_read: _Optional[int] = ..., rows: _Optional[int] = ..., most_read: _Optional[int] = ..., seconds: _Optional[float] = ..., drafted: _Optional[_Mapping[str, int]] = ..., accepted: _Optional[_Mapping[str, int]] = ..., since_asked_s: _Optional[float] = ..., passes: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("number", "sentence", "kind")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAILED: _ClassVar[Refused.Kind]
        QUESTION: _ClassVar[Refused.Kind]
        NOT_FINITE: _ClassVar[Refused.Kind]
    FAILED: Refused.Kind
    QUESTION: Refused.Kind
    NOT_FINITE: Refused.Kind
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    number: int
    sentence: str
    kind: Refused.Kind
    def __init__(self, number: _Optional[int] = ..., sentence: _Optional[str] = ..., kind: _Optional[_Union[Refused.Kind, str]] = ...) -> None: ...
