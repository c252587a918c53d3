/* Peers of the experiment chat-client that are written in C or C++: rapidxml,
 * pugixml, libxml2 (SAX and DOM), simdjson (DOM and On-Demand), json-c, json-glib,
 * and the codec of Weir through weir_psyc.h. The first argument of the program
 * names the peer.
 *
 * Every peer gives the client decoded texts: entities and escapes are expanded. */
#include "client.h"

#include <memory>

/* json-c and json-glib share names of functions, so each has a separate program. The
 * program for Weir needs only its library. */
#if defined(WITH_WEIR)
#include <weir_psyc.h>
#elif defined(WITH_JSON_GLIB)
#include <json-glib/json-glib.h>
#else
#include <json-c/json.h>
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <libxml/tree.h>
#include <pugixml.hpp>
#include <rapidxml/rapidxml.hpp>
#include <simdjson.h>
#endif

namespace {

/* The cost of the client alone: the events are decoded before the timing, and replies are
 * not written. */
struct Floor {
    struct Owned {
        Kind kind;
        uint8_t availability;
        std::string who, id, text;
    };
    std::vector<Owned> events;

    void add(const Event &event) {
        events.push_back({event.kind, event.availability, std::string(event.who), std::string(event.id),
                          std::string(event.text)});
    }
};

/* The kind of a message in JSON. */
[[maybe_unused]] Stanza::Kind json_kind(View type) {
    if (type == "presence") return Stanza::PRESENCE;
    if (type == "groupchat") return Stanza::GROUPCHAT;
    if (type == "chat") return Stanza::CHAT;
    return type == "ping" ? Stanza::PING : Stanza::NONE;
}

/* Stores a member of a message in JSON. */
[[maybe_unused]] void json_member(Stanza &stanza, View key, View value) {
    if (key == "type") stanza.kind = json_kind(value);
    else if (key == "from") stanza.from = value;
    else if (key == "show") stanza.show = value;
    else if (key == "id") stanza.id = value;
    else if (key == "body") stanza.body = value;
}

/* Stores the name of a stanza in XML. The kind of an iq follows from its child. */
[[maybe_unused]] bool xml_stanza(Stanza &stanza, View name) {
    if (name == "presence") stanza.kind = Stanza::PRESENCE;
    else if (name == "message") stanza.kind = Stanza::CHAT;
    else return name == "iq";
    return true;
}

/* Stores an attribute of a stanza in XML. */
[[maybe_unused]] void xml_attribute(Stanza &stanza, View name, View value) {
    if (name == "from") stanza.from = value;
    else if (name == "id") stanza.id = value;
    else if (name == "type" && value == "groupchat") stanza.kind = Stanza::GROUPCHAT;
    else if (name == "type" && value == "unavailable") stanza.show = value;
}

/* Stores a child of a stanza in XML. */
[[maybe_unused]] void xml_child(Stanza &stanza, View name, View text) {
    if (name == "body") stanza.body = text;
    else if (name == "show") stanza.show = text;
    else if (name == "ping") stanza.kind = Stanza::PING;
}

#if defined(WITH_WEIR)

/* The codec of Weir, one parser for all packets of the connection. */
struct Psyc final : Dialect {
    static constexpr size_t EVENTS = 16;
    weir_psyc_parser parser = {};

    Psyc() {
        parser.struct_size = sizeof parser;
        if (weir_psyc_parser_init(&parser, nullptr, nullptr) != WEIR_OK) abort();
    }
    static View view(weir_slice slice) { return {(const char *)slice.ptr, slice.len}; }
    static weir_slice slice(View text) { return {(const uint8_t *)text.data(), text.size()}; }
    bool decode(View packet, char *, Event &event) override {
        weir_psyc_event parts[EVENTS];
        size_t count = 0, used = 0;
        View context, source, tag, nick, availability, method, data;
        if (weir_psyc_parser_read(&parser, slice(packet), parts, EVENTS, &count, &used, nullptr) != WEIR_READY)
            return false;
        for (size_t i = 0; i < count; i++) {
            View name = view(parts[i].name), value = view(parts[i].value);
            if (parts[i].kind == WEIR_PSYC_ROUTING) {
                if (name == "_context") context = value;
                else if (name == "_source") source = value;
                else if (name == "_tag") tag = value;
            } else if (parts[i].kind == WEIR_PSYC_ENTITY) {
                if (name == "_nick") nick = value;
                else if (name == "_degree_availability") availability = value;
            } else if (parts[i].kind == WEIR_PSYC_BODY) {
                method = name;
                data = value;
            }
        }
        event = {PUBLIC, nick, 0, tag, data};
        if (method == "_message_public") return context == ROOM_UNIFORM;
        if (method == "_notice_presence") {
            event.kind = PRESENCE;
            event.who = context;
            if (availability.size() != 1 || availability[0] < '0' || availability[0] > '9') return false;
            event.availability = uint8_t(availability[0] - '0');
            return true;
        }
        if (method == "_message_private" || method == "_ping") {
            event.kind = method == "_ping" ? PING : PRIVATE;
            event.who = source;
            return true;
        }
        event.kind = method == "_notice_context_enter" ? ENTER : LEAVE;
        return (event.kind == ENTER || method == "_notice_context_leave") && context == ROOM_UNIFORM;
    }
    void write(const Reply &reply, std::string &out) override {
        bool to_room = reply.kind == SAY;
        weir_psyc_modifier routing[2] = {};
        routing[0].operation = routing[1].operation = ':';
        routing[0].name = slice("_target");
        routing[0].value = slice(to_room ? ROOM_UNIFORM : reply.to);
        routing[1].name = slice("_tag_relay");
        routing[1].value = slice(reply.id);
        weir_psyc_packet packet = {};
        packet.struct_size = sizeof packet;
        packet.routing = routing;
        packet.routing_count = to_room ? 1 : 2;
        packet.method = slice(to_room ? "_message_public" : reply.kind == PONG ? "_pong" : "_status_received");
        packet.data = slice(reply.text);
        size_t size = 0;
        out.resize(out.capacity());
        int32_t done = weir_psyc_render(&packet, (uint8_t *)out.data(), out.size(), &size, nullptr);
        if (done == WEIR_NEED) {
            out.resize(size);
            done = weir_psyc_render(&packet, (uint8_t *)out.data(), out.size(), &size, nullptr);
        }
        if (done != WEIR_OK) abort();
        out.resize(size);
    }
};

#elif defined(WITH_JSON_GLIB)

struct JsonGlib final : Dialect {
    JsonParser *parser = json_parser_new();

    ~JsonGlib() override { g_object_unref(parser); }
    bool decode(View packet, char *, Event &event) override {
        if (!json_parser_load_from_data(parser, packet.data(), (gssize)packet.size(), nullptr)) return false;
        JsonNode *root = json_parser_get_root(parser);
        if (json_node_get_node_type(root) != JSON_NODE_OBJECT) return false;
        JsonObject *message = json_node_get_object(root);
        Stanza stanza;
        for (const char *key : {"type", "from", "show", "id", "body"}) {
            JsonNode *value = json_object_get_member(message, key);
            const char *text = value ? json_node_get_string(value) : nullptr;
            if (text) json_member(stanza, key, text);
        }
        return event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_json(reply, out); }
};

#else

struct RapidXml final : Dialect {
    rapidxml::xml_document<> document;

    bool changes_input() const override { return true; }
    bool decode(View, char *text, Event &event) override {
        constexpr int flags = rapidxml::parse_no_string_terminators | rapidxml::parse_no_data_nodes;
        document.clear();
        try {
            document.parse<flags>(text);
        } catch (const rapidxml::parse_error &) {
            return false;
        }
        const rapidxml::xml_node<> *root = document.first_node();
        Stanza stanza;
        if (!root || !xml_stanza(stanza, {root->name(), root->name_size()})) return false;
        for (auto *a = root->first_attribute(); a; a = a->next_attribute())
            xml_attribute(stanza, {a->name(), a->name_size()}, {a->value(), a->value_size()});
        for (auto *child = root->first_node(); child; child = child->next_sibling())
            xml_child(stanza, {child->name(), child->name_size()}, {child->value(), child->value_size()});
        return event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_xml(reply, out); }
};

struct PugiXml final : Dialect {
    pugi::xml_document document;

    bool changes_input() const override { return true; }
    bool decode(View packet, char *text, Event &event) override {
        auto read = document.load_buffer_inplace(text, packet.size(), pugi::parse_escapes, pugi::encoding_utf8);
        if (read.status != pugi::status_ok) return false;
        pugi::xml_node root = document.first_child();
        Stanza stanza;
        if (!xml_stanza(stanza, root.name())) return false;
        for (auto a : root.attributes()) xml_attribute(stanza, a.name(), a.value());
        for (auto child : root) xml_child(stanza, child.name(), child.child_value());
        return event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_xml(reply, out); }
};

/* The events of libxml2. Text may arrive in pieces, which are joined. */
struct LibxmlSax final : Dialect {
    xmlSAXHandler handler;
    Stanza stanza;
    std::string from, id, show, body;
    std::string *text = nullptr;
    int depth = 0;
    bool known = true;

    LibxmlSax() {
        memset(&handler, 0, sizeof handler);
        handler.startElement = [](void *self, const xmlChar *name, const xmlChar **attributes) {
            static_cast<LibxmlSax *>(self)->start((const char *)name, (const char **)attributes);
        };
        handler.endElement = [](void *self, const xmlChar *) {
            static_cast<LibxmlSax *>(self)->depth--;
            static_cast<LibxmlSax *>(self)->text = nullptr;
        };
        handler.characters = [](void *self, const xmlChar *at, int length) {
            std::string *text = static_cast<LibxmlSax *>(self)->text;
            if (text) text->append((const char *)at, (size_t)length);
        };
        handler.ignorableWhitespace = handler.characters;
        handler.getEntity = [](void *, const xmlChar *name) { return xmlGetPredefinedEntity(name); };
    }
    void start(View name, const char **attributes) {
        if (depth++ == 0) {
            known = xml_stanza(stanza, name);
            for (; attributes && attributes[0]; attributes += 2) {
                View key = attributes[0], value = attributes[1];
                /* The values are valid only during this call. */
                if (key == "from") from = value;
                else if (key == "id") id = value;
                else if (key == "type" && value == "unavailable") show = value;
                else xml_attribute(stanza, key, value);
            }
        } else if (depth == 2) {
            text = name == "body" ? &body : name == "show" ? &show : nullptr;
            if (name == "ping") stanza.kind = Stanza::PING;
        }
    }
    bool decode(View packet, char *, Event &event) override {
        stanza = Stanza();
        for (std::string *part : {&from, &id, &show, &body}) part->clear();
        depth = 0;
        xmlParserCtxtPtr context = xmlCreateMemoryParserCtxt(packet.data(), (int)packet.size());
        if (!context) return false;
        xmlCtxtUseOptions(context, XML_PARSE_NONET | XML_PARSE_NOERROR);
        *context->sax = handler;
        context->userData = this;
        bool good = xmlParseDocument(context) == 0;
        xmlFreeParserCtxt(context);
        stanza.from = from, stanza.id = id, stanza.show = show, stanza.body = body;
        return good && known && event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_xml(reply, out); }
};

struct LibxmlDom final : Dialect {
    xmlDocPtr document = nullptr;
    std::string joined;

    ~LibxmlDom() override { xmlFreeDoc(document); }
    static View view(const xmlChar *text) { return text ? View((const char *)text) : View(); }
    /* The text of a list of nodes. */
    View text(const xmlNode *node) {
        if (!node) return {};
        if (!node->next) return view(node->content);
        joined.clear();
        for (; node; node = node->next) joined.append(view(node->content));
        return joined;
    }
    bool decode(View packet, char *, Event &event) override {
        xmlFreeDoc(document);
        document = xmlReadMemory(packet.data(), (int)packet.size(), "packet.xml", nullptr,
                                 XML_PARSE_NOENT | XML_PARSE_NONET | XML_PARSE_NOERROR);
        if (!document) return false;
        const xmlNode *root = xmlDocGetRootElement(document);
        Stanza stanza;
        if (!xml_stanza(stanza, view(root->name))) return false;
        for (const xmlAttr *a = root->properties; a; a = a->next)
            xml_attribute(stanza, view(a->name), a->children ? view(a->children->content) : View());
        for (const xmlNode *child = root->children; child; child = child->next)
            if (child->type == XML_ELEMENT_NODE) xml_child(stanza, view(child->name), text(child->children));
        return event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_xml(reply, out); }
};

struct SimdJson final : Dialect {
    simdjson::dom::parser parser;

    bool decode(View packet, char *, Event &event) override {
        simdjson::dom::object message;
        if (parser.parse(packet.data(), packet.size(), false).get(message)) return false;
        Stanza stanza;
        for (auto member : message) {
            View value;
            if (!member.value.get(value)) json_member(stanza, member.key, value);
        }
        return event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_json(reply, out); }
};

struct SimdJsonOnDemand final : Dialect {
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document;

    bool decode(View packet, char *, Event &event) override {
        simdjson::padded_string_view bytes(packet.data(), packet.size(), packet.size() + simdjson::SIMDJSON_PADDING);
        simdjson::ondemand::object message;
        if (parser.iterate(bytes).get(document) || document.get_object().get(message)) return false;
        /* The needed members, in the order in which servers write them. */
        View type;
        Stanza stanza;
        if (!find(message, "type", type) || !find(message, "from", stanza.from)) return false;
        stanza.kind = json_kind(type);
        switch (stanza.kind) {
        case Stanza::PRESENCE: return find_optional(message, "show", stanza.show) && event_of(stanza, event);
        case Stanza::GROUPCHAT: return find(message, "body", stanza.body) && event_of(stanza, event);
        case Stanza::CHAT:
            return find(message, "id", stanza.id) && find(message, "body", stanza.body) && event_of(stanza, event);
        case Stanza::PING: return find(message, "id", stanza.id) && event_of(stanza, event);
        case Stanza::NONE: break;
        }
        return false;
    }
    static bool find(simdjson::ondemand::object &message, View key, View &value) {
        return !message.find_field(key).get_string().get(value);
    }
    static bool find_optional(simdjson::ondemand::object &message, View key, View &value) {
        simdjson::error_code error = message.find_field(key).get_string().get(value);
        return !error || error == simdjson::NO_SUCH_FIELD;
    }
    void write(const Reply &reply, std::string &out) override { write_json(reply, out); }
};

struct JsonC final : Dialect {
    json_tokener *tokener = json_tokener_new();
    json_object *root = nullptr;

    ~JsonC() override {
        json_object_put(root);
        json_tokener_free(tokener);
    }
    bool decode(View packet, char *, Event &event) override {
        json_object_put(root);
        json_tokener_reset(tokener);
        root = json_tokener_parse_ex(tokener, packet.data(), (int)packet.size());
        if (!root || json_object_get_type(root) != json_type_object) return false;
        Stanza stanza;
        json_object_object_foreach(root, key, value) {
            if (json_object_get_type(value) != json_type_string) continue;
            View text(json_object_get_string(value), (size_t)json_object_get_string_len(value));
            json_member(stanza, key, text);
        }
        return event_of(stanza, event);
    }
    void write(const Reply &reply, std::string &out) override { write_json(reply, out); }
};

#endif

/* Start and length of each message of a file. */
using Ranges = std::vector<std::pair<size_t, size_t>>;

/* A session. */
struct Session {
    std::string bytes; /* of the file, with bytes after it for simdjson */
    Ranges ranges;
    std::vector<char> plain, copy;    /* each packet and a zero byte */
    std::vector<std::string> replies; /* the expected reply to each packet; empty for none */
    Floor floor;
};

std::unique_ptr<Dialect> dialect;
bool only_client = false; /* the floor */
std::unique_ptr<Session> sessions[PEER_INPUTS_MAX];
Client client;
std::string out;

/* Restores the copy for parsers that change their input. */
void restore_copy(Session &session) {
    if (dialect->changes_input()) memcpy(session.copy.data(), session.plain.data(), session.plain.size());
}

/* Processes a session, and calls `each` with the number of the packet and each reply, whose bytes
 * are in `out`. */
template <class Each> bool pass(Session &session, uint64_t &touch, Each each) {
    uint64_t sum = 0;
    size_t number = 0;
    client.clear();
    if (only_client) {
        for (const Floor::Owned &owned : session.floor.events) {
            Event event = {owned.kind, owned.who, owned.availability, owned.id, owned.text};
            sum += touch_of(event);
            Reply reply = client.apply(event);
            if (reply.kind != NO_REPLY) each(number, reply);
            number++;
        }
        touch = sum;
        return true;
    }
    char *text = session.copy.data();
    for (auto [start, length] : session.ranges) {
        Event event;
        if (!dialect->decode(View(session.bytes).substr(start, length), text, event)) return false;
        sum += touch_of(event);
        Reply reply = client.apply(event);
        if (reply.kind != NO_REPLY) {
            out.clear();
            dialect->write(reply, out);
            each(number, reply);
            sum += peer_touch(out.data(), out.size());
        }
        text += length + 1;
        number++;
    }
    touch = sum;
    return true;
}

bool read_file(const std::string &path, std::string &bytes) {
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) return false;
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0) bytes.append(block, got);
    bool good = !ferror(file);
    fclose(file);
    return good;
}

/* Finds the messages of a file. Each follows a line with its length in bytes. */
bool find_messages(View rest, Ranges &ranges) {
    size_t at = 0;
    while (at < rest.size()) {
        size_t length = 0, digits = at;
        for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; digits++)
            length = length * 10 + size_t(rest[digits] - '0');
        if (digits == at || digits >= rest.size() || rest[digits] != '\n') return false;
        at = digits + 1;
        if (length > rest.size() - at) return false;
        ranges.emplace_back(at, length);
        at += length;
    }
    return true;
}

/* The error for the first unexpected reply, or NULL. */
const char *verify(const Session &session, const std::vector<std::string> &written) {
    static char wrong[80];
    for (size_t i = 0; i < written.size(); i++) {
        if (written[i] == session.replies[i]) continue;
        snprintf(wrong, sizeof wrong, "the reply to packet %zu differs from the expected reply", i);
        return wrong;
    }
    return nullptr;
}

} // namespace

static const char *peer_load(unsigned input, const char *fields) {
    char path[4096];
    if (!peer_field(fields, "file", path, sizeof path)) return "parameter `file` is missing";
    auto session = std::make_unique<Session>();
    std::string expected;
    Ranges of_replies;
    if (!read_file(path, session->bytes) || !read_file(std::string(path) + ".replies", expected))
        return "a file of the session cannot be read";
    if (!find_messages(session->bytes, session->ranges) || !find_messages(expected, of_replies) ||
        session->ranges.size() != of_replies.size())
        return "the file is not a session";
    for (auto [start, length] : session->ranges) {
        View packet = View(session->bytes).substr(start, length);
        session->plain.insert(session->plain.end(), packet.begin(), packet.end());
        session->plain.push_back(0);
    }
    session->copy = session->plain;
    for (auto [start, length] : of_replies) session->replies.push_back(expected.substr(start, length));
    session->bytes.append(256, ' ');
    if (only_client) {
        char *text = session->copy.data();
        for (auto [start, length] : session->ranges) {
            Event event;
            if (!dialect->decode(View(session->bytes).substr(start, length), text, event))
                return "the peer refused the input";
            session->floor.add(event);
            text += length + 1;
        }
    }
    sessions[input] = std::move(session);
    return nullptr;
}

static const char *peer_check(unsigned input, struct peer_answer *answer) {
    if (!sessions[input]) return "input was not loaded";
    Session &session = *sessions[input];
    uint64_t content = 0;
    std::vector<std::string> written(session.replies.size());
    restore_copy(session);
    bool good = pass(session, answer->touch, [&](size_t packet, const Reply &reply) {
        content += hash_of_reply(reply);
        written[packet] = out;
    });
    if (!good) return "the peer refused the input";
    /* The floor does not write replies. */
    const char *wrong = only_client ? nullptr : verify(session, written);
    if (wrong) return wrong;
    answer->content = content + client.hash();
    restore_copy(session);
    uint64_t calls = peer_calls, bytes = peer_bytes;
    peer_counting = 1;
    pass(session, answer->touch, [](size_t, const Reply &) {});
    peer_counting = 0;
    answer->allocations = peer_calls - calls;
    answer->bytes = peer_bytes - bytes;
    return nullptr;
}

static const char *peer_run(unsigned input, uint64_t iterations, struct peer_timed *timed) {
    if (!sessions[input]) return "input was not loaded";
    Session &session = *sessions[input];
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t touch = 0;
        restore_copy(session);
        uint64_t cpu = peer_cpu(), wall = peer_wall();
        bool good = pass(session, touch, [](size_t, const Reply &) {});
        timed->wall_ns += peer_wall() - wall;
        timed->cpu_ns += peer_cpu() - cpu;
        if (!good) return "the peer refused the input";
        timed->touch += touch;
    }
    return nullptr;
}

int main(int argc, char **argv) {
    std::string name = argc > 1 ? argv[1] : "";
    std::string version;
#if defined(WITH_WEIR)
    if (!strstr(weir_build_info(), "profile=release")) {
        fputs("c-chat-weir: the C library is not a release build\n", stderr);
        return 1;
    }
    if (name == "weir") dialect = std::make_unique<Psyc>();
    version = std::string("\tweir=") + weir_build_info();
#elif defined(WITH_JSON_GLIB)
    if (name == "json-glib") dialect = std::make_unique<JsonGlib>(), version = "\tjson-glib=" JSON_VERSION_S;
#else
    std::string simd = "\tsimdjson=" + std::to_string(simdjson::SIMDJSON_VERSION_MAJOR) + "." +
                       std::to_string(simdjson::SIMDJSON_VERSION_MINOR) + "." +
                       std::to_string(simdjson::SIMDJSON_VERSION_REVISION) + " " +
                       simdjson::get_active_implementation()->name();
    if (name == "rapidxml") dialect = std::make_unique<RapidXml>(), version = "\trapidxml=1.13";
    else if (name == "pugixml")
        dialect = std::make_unique<PugiXml>(), version = "\tpugixml=" + std::to_string(PUGIXML_VERSION);
    else if (name == "libxml2-sax") dialect = std::make_unique<LibxmlSax>();
    else if (name == "libxml2-dom") dialect = std::make_unique<LibxmlDom>();
    else if (name == "simdjson") dialect = std::make_unique<SimdJson>(), version = simd;
    else if (name == "simdjson-ondemand") dialect = std::make_unique<SimdJsonOnDemand>(), version = simd;
    else if (name == "json-c") dialect = std::make_unique<JsonC>(), version = "\tjson-c=" JSON_C_VERSION;
    else if (name == "floor") dialect = std::make_unique<SimdJson>(), only_client = true;
    if (name.compare(0, 7, "libxml2") == 0) version = "\tlibxml2=" LIBXML_DOTTED_VERSION;
#endif
    if (!dialect) {
        fputs("usage: c-chat rapidxml|pugixml|libxml2-sax|libxml2-dom|simdjson|simdjson-ondemand|json-c|floor,\n"
              "       c-chat-glib json-glib, c-chat-weir weir\n",
              stderr);
        return 2;
    }
    return peer_serve(version.c_str());
}
