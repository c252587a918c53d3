/* Peers of the experiments wire-parse and wire-render that are written in C or
 * C++: strlen, rapidxml, pugixml, simdjson (DOM and On-Demand), json-c, json-glib,
 * libxml2 (SAX and DOM). The first argument of the program names the peer. With the second
 * argument `render`, a pass also renders the packet again from the parsed
 * parts, and the content is that of the rendered packet.
 *
 * Every peer builds a complete tree or event sequence, except simdjson On-Demand,
 * and touches every name and value. The hash of the content is that of
 * crates/weir-lab/src/contender/wire.rs. In its fastest mode, rapidxml does not
 * expand entities, so `expand` does it for the content, which is not timed. */
#include "../peer.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

/* json-c and json-glib share names of functions, so each has a separate program. */
#ifdef WITH_JSON_GLIB
#include <json-glib/json-glib.h>
#else
#include <json-c/json.h>
#endif
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <libxml/tree.h>
#include <pugixml.hpp>
#include <rapidxml/rapidxml.hpp>
#include <simdjson.h>

namespace {

struct Packet {
    std::string bytes;                 /* as in the file */
    std::vector<char> copy;            /* for parsers that change their input */
    simdjson::padded_string padded;    /* for simdjson, which reads past the end */
};

/* One parser. `pass` parses once and stores the touch sum. `restore_copy` restores the
 * copy, untimed. */
struct Parser {
    virtual ~Parser() = default;
    virtual void prepare(Packet &) {}
    virtual bool changes_input() const { return false; }
    virtual bool pass(Packet &packet, uint64_t &touch) = 0;
    virtual bool content(Packet &packet, uint64_t &content) = 0;
    /* Parses the packet and renders it to `out`, whose memory is reused. Returns
     * false if the parser rejects the packet. */
    virtual bool render(Packet &, std::string &) { return false; }
};

struct Strlen final : Parser {
    bool pass(Packet &packet, uint64_t &touch) override {
        const char *text = packet.bytes.c_str();
        __asm__ volatile("" : "+r"(text) : : "memory");
        touch = strlen(text);
        return true;
    }
    bool content(Packet &packet, uint64_t &content) override { return pass(packet, content); }
};

bool blank(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\n", text[i]) || text[i] == 0) return false;
    return true;
}

/* Expands the five entities and character references. */
std::string expand(const char *text, size_t length) {
    std::string out;
    for (size_t i = 0; i < length; i++) {
        const char *end = text[i] == '&' ? (const char *)memchr(text + i, ';', length - i) : nullptr;
        if (!end) {
            out += text[i];
            continue;
        }
        std::string name(text + i + 1, end);
        i = size_t(end - text);
        if (name == "lt") out += '<';
        else if (name == "gt") out += '>';
        else if (name == "amp") out += '&';
        else if (name == "quot") out += '"';
        else if (name == "apos") out += '\'';
        else {
            bool hex = name.size() > 1 && name[1] == 'x';
            unsigned long code = strtoul(name.c_str() + (hex ? 2 : 1), nullptr, hex ? 16 : 10);
            if (code < 0x80) out += char(code);
            else if (code < 0x800) (out += char(0xC0 | code >> 6)) += char(0x80 | (code & 63));
            else {
                out += char(0xE0 | code >> 12);
                out += char(0x80 | (code >> 6 & 63));
                out += char(0x80 | (code & 63));
            }
        }
    }
    return out;
}

struct RapidXml final : Parser {
    rapidxml::xml_document<> document;

    bool changes_input() const override { return true; }
    template <class Each> uint64_t walk(const rapidxml::xml_node<> *node, Each each) {
        uint64_t sum = each('e', node->name(), node->name_size(), nullptr, 0);
        for (auto *a = node->first_attribute(); a; a = a->next_attribute())
            sum += each('a', a->name(), a->name_size(), a->value(), a->value_size());
        if (node->value_size()) sum += each('t', node->value(), node->value_size(), nullptr, 0);
        for (auto *child = node->first_node(); child; child = child->next_sibling())
            if (child->type() == rapidxml::node_element) sum += walk(child, each);
        return sum;
    }
    template <class Each> bool parse(Packet &packet, uint64_t &sum, Each each) {
        document.clear();
        try {
            document.parse<rapidxml::parse_fastest>(packet.copy.data());
        } catch (const rapidxml::parse_error &) {
            return false;
        }
        sum = 0;
        for (auto *node = document.first_node(); node; node = node->next_sibling())
            sum += walk(node, each);
        return true;
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char, const char *a, size_t m, const char *b, size_t n) {
            return peer_touch(a, m) + peer_touch(b, n);
        });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char kind, const char *a, size_t m, const char *b, size_t n) {
            if (kind == 'e') return peer_part(kind, a, m);
            if (kind == 't') {
                std::string text = expand(a, m);
                return peer_part(kind, text.data(), text.size());
            }
            std::string value = expand(b, n);
            return peer_pair(kind, a, m, value.data(), value.size());
        });
    }
    /* Replaces the printer of the library, which writes byte by byte and does not
     * compile with current compilers. Entities are not expanded, so values are
     * written unchanged. */
    static void print(const rapidxml::xml_node<> *node, std::string &out) {
        (out += '<').append(node->name(), node->name_size());
        for (auto *a = node->first_attribute(); a; a = a->next_attribute()) {
            char quote = memchr(a->value(), '\'', a->value_size()) ? '"' : '\'';
            (out += ' ').append(a->name(), a->name_size()) += '=';
            ((out += quote).append(a->value(), a->value_size())) += quote;
        }
        if (!node->first_node()) {
            if (!node->value_size()) {
                out += "/>";
                return;
            }
            (out += '>').append(node->value(), node->value_size());
        } else {
            out += '>';
            for (auto *child = node->first_node(); child; child = child->next_sibling()) {
                if (child->type() == rapidxml::node_element) print(child, out);
                else out.append(child->value(), child->value_size());
            }
        }
        (out += "</").append(node->name(), node->name_size()) += '>';
    }
    bool render(Packet &packet, std::string &out) override {
        document.clear();
        try {
            document.parse<rapidxml::parse_fastest>(packet.copy.data());
        } catch (const rapidxml::parse_error &) {
            return false;
        }
        for (auto *node = document.first_node(); node; node = node->next_sibling()) print(node, out);
        return true;
    }
};

struct PugiXml final : Parser {
    pugi::xml_document document;

    bool changes_input() const override { return true; }
    template <class Each> uint64_t walk(const pugi::xml_node &node, Each each) {
        auto size = [](const char *text) { return strlen(text); };
        uint64_t sum = each('e', node.name(), size(node.name()), nullptr, 0);
        for (auto a : node.attributes())
            sum += each('a', a.name(), size(a.name()), a.value(), size(a.value()));
        for (auto child : node)
            sum += child.type() == pugi::node_element
                       ? walk(child, each)
                       : each('t', child.value(), size(child.value()), nullptr, 0);
        return sum;
    }
    bool read(Packet &packet) {
        return document
            .load_buffer_inplace(packet.copy.data(), packet.copy.size() - 1, pugi::parse_minimal,
                                 pugi::encoding_utf8)
            .status == pugi::status_ok;
    }
    template <class Each> bool parse(Packet &packet, uint64_t &sum, Each each) {
        if (!read(packet)) return false;
        sum = 0;
        for (auto node : document) sum += walk(node, each);
        return true;
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char, const char *a, size_t m, const char *b, size_t n) {
            return peer_touch(a, m) + peer_touch(b, n);
        });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char kind, const char *a, size_t m, const char *b, size_t n) {
            if (kind == 'e') return peer_part(kind, a, m);
            if (kind == 't') {
                std::string text = expand(a, m);
                return blank(text.data(), text.size()) ? 0 : peer_part(kind, text.data(), text.size());
            }
            std::string value = expand(b, n);
            return peer_pair(kind, a, m, value.data(), value.size());
        });
    }
    struct Writer final : pugi::xml_writer {
        std::string &out;
        explicit Writer(std::string &out) : out(out) {}
        void write(const void *data, size_t size) override { out.append((const char *)data, size); }
    };
    bool render(Packet &packet, std::string &out) override {
        if (!read(packet)) return false;
        Writer writer(out);
        document.save(writer, "",
                      pugi::format_raw | pugi::format_no_declaration | pugi::format_no_escapes,
                      pugi::encoding_utf8);
        return true;
    }
};

struct SimdJson final : Parser {
    simdjson::dom::parser parser;

    void prepare(Packet &packet) override { packet.padded = simdjson::padded_string(packet.bytes); }
    template <class Each> uint64_t walk(simdjson::dom::element node, Each each) {
        using simdjson::dom::element_type;
        uint64_t sum = 0;
        switch (node.type()) {
        case element_type::OBJECT:
            for (auto member : simdjson::dom::object(node)) {
                sum += each('k', member.key.data(), member.key.size());
                sum += walk(member.value, each);
            }
            return sum;
        case element_type::ARRAY:
            for (auto item : simdjson::dom::array(node)) sum += walk(item, each);
            return sum;
        case element_type::STRING: {
            std::string_view text = node;
            return each('s', text.data(), text.size());
        }
        case element_type::BOOL: {
            bool yes = node;
            return each('n', yes ? "true" : "false", yes ? 4 : 5);
        }
        case element_type::NULL_VALUE: return each('n', "null", 4);
        default: {
            std::string text = simdjson::minify(node);
            return each('n', text.data(), text.size());
        }
        }
    }
    template <class Each> bool parse(Packet &packet, uint64_t &sum, Each each) {
        simdjson::dom::element root;
        if (parser.parse(packet.padded).get(root)) return false;
        sum = walk(root, each);
        return true;
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char, const char *a, size_t n) { return peer_touch(a, n); });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char k, const char *a, size_t n) { return peer_part(k, a, n); });
    }
    bool render(Packet &packet, std::string &out) override {
        simdjson::dom::element root;
        if (parser.parse(packet.padded).get(root)) return false;
        out.append(simdjson::minify(root));
        return true;
    }
};

/* Reads values in the order of the packet, without a tree. */
struct SimdJsonOnDemand final : Parser {
    simdjson::ondemand::parser parser;

    void prepare(Packet &packet) override { packet.padded = simdjson::padded_string(packet.bytes); }
    template <class Each> bool walk(simdjson::ondemand::value node, uint64_t &sum, Each each) {
        using simdjson::ondemand::json_type;
        std::string_view text;
        json_type type;
        if (node.type().get(type)) return false;
        if (type == json_type::object) {
            simdjson::ondemand::object members;
            if (node.get_object().get(members)) return false;
            for (auto member : members) {
                simdjson::ondemand::value value;
                if (member.unescaped_key().get(text)) return false;
                sum += each('k', text.data(), text.size());
                if (member.value().get(value) || !walk(value, sum, each)) return false;
            }
            return true;
        }
        if (type == json_type::array) {
            simdjson::ondemand::array items;
            if (node.get_array().get(items)) return false;
            for (auto item : items) {
                simdjson::ondemand::value value;
                if (item.get(value) || !walk(value, sum, each)) return false;
            }
            return true;
        }
        if (type == json_type::string) {
            if (node.get_string().get(text)) return false;
            sum += each('s', text.data(), text.size());
            return true;
        }
        text = node.raw_json_token();
        while (blank(text.data() + text.size() - 1, 1)) text.remove_suffix(1);
        sum += each('n', text.data(), text.size());
        return true;
    }
    template <class Each> bool parse(Packet &packet, uint64_t &sum, Each each) {
        simdjson::ondemand::document document;
        simdjson::ondemand::value root;
        sum = 0;
        return !parser.iterate(packet.padded).get(document) && !document.get_value().get(root) &&
               walk(root, sum, each);
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char, const char *a, size_t n) { return peer_touch(a, n); });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char k, const char *a, size_t n) { return peer_part(k, a, n); });
    }
};

#ifndef WITH_JSON_GLIB
struct JsonC final : Parser {
    json_tokener *tokener = json_tokener_new();

    ~JsonC() override { json_tokener_free(tokener); }
    template <class Each> uint64_t walk(json_object *node, Each each) {
        uint64_t sum = 0;
        switch (json_object_get_type(node)) {
        case json_type_object: {
            json_object_object_foreach(node, key, value) {
                sum += each('k', key, strlen(key));
                sum += walk(value, each);
            }
            return sum;
        }
        case json_type_array:
            for (size_t i = 0; i < json_object_array_length(node); i++)
                sum += walk(json_object_array_get_idx(node, i), each);
            return sum;
        case json_type_string:
            return each('s', json_object_get_string(node), (size_t)json_object_get_string_len(node));
        case json_type_null: return each('n', "null", 4);
        default: {
            const char *text = json_object_to_json_string(node);
            return each('n', text, strlen(text));
        }
        }
    }
    template <class Each> bool parse(Packet &packet, uint64_t &sum, Each each) {
        json_tokener_reset(tokener);
        json_object *root =
            json_tokener_parse_ex(tokener, packet.bytes.data(), (int)packet.bytes.size());
        if (!root) return false;
        sum = walk(root, each);
        json_object_put(root);
        return true;
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char, const char *a, size_t n) { return peer_touch(a, n); });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char k, const char *a, size_t n) { return peer_part(k, a, n); });
    }
    bool render(Packet &packet, std::string &out) override {
        json_tokener_reset(tokener);
        json_object *root =
            json_tokener_parse_ex(tokener, packet.bytes.data(), (int)packet.bytes.size());
        if (!root) return false;
        size_t length = 0;
        const char *text = json_object_to_json_string_length(root, JSON_C_TO_STRING_PLAIN, &length);
        out.append(text, length);
        json_object_put(root);
        return true;
    }
};
#else
struct JsonGlib final : Parser {
    JsonParser *parser = json_parser_new();
    JsonGenerator *generator = json_generator_new();

    ~JsonGlib() override { g_object_unref(parser), g_object_unref(generator); }
    template <class Each> uint64_t walk(JsonNode *node, Each each) {
        uint64_t sum = 0;
        switch (json_node_get_node_type(node)) {
        case JSON_NODE_OBJECT: {
            JsonObjectIter iterator;
            const char *key;
            JsonNode *value;
            json_object_iter_init(&iterator, json_node_get_object(node));
            while (json_object_iter_next(&iterator, &key, &value)) {
                sum += each('k', key, strlen(key));
                sum += walk(value, each);
            }
            return sum;
        }
        case JSON_NODE_ARRAY: {
            JsonArray *items = json_node_get_array(node);
            for (guint i = 0; i < json_array_get_length(items); i++)
                sum += walk(json_array_get_element(items, i), each);
            return sum;
        }
        case JSON_NODE_NULL: return each('n', "null", 4);
        default: break;
        }
        switch (json_node_get_value_type(node)) {
        case G_TYPE_STRING: {
            const char *text = json_node_get_string(node);
            return each('s', text, strlen(text));
        }
        case G_TYPE_BOOLEAN: {
            bool yes = json_node_get_boolean(node);
            return each('n', yes ? "true" : "false", yes ? 4 : 5);
        }
        case G_TYPE_INT64: {
            std::string text = std::to_string(json_node_get_int(node));
            return each('n', text.data(), text.size());
        }
        default: {
            char text[G_ASCII_DTOSTR_BUF_SIZE];
            g_ascii_dtostr(text, sizeof text, json_node_get_double(node));
            return each('n', text, strlen(text));
        }
        }
    }
    template <class Each> bool parse(Packet &packet, uint64_t &sum, Each each) {
        auto size = (gssize)packet.bytes.size();
        if (!json_parser_load_from_data(parser, packet.bytes.data(), size, nullptr)) return false;
        sum = walk(json_parser_get_root(parser), each);
        return true;
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char, const char *a, size_t n) { return peer_touch(a, n); });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [](char k, const char *a, size_t n) { return peer_part(k, a, n); });
    }
    bool render(Packet &packet, std::string &out) override {
        auto size = (gssize)packet.bytes.size();
        if (!json_parser_load_from_data(parser, packet.bytes.data(), size, nullptr)) return false;
        json_generator_set_root(generator, json_parser_get_root(parser));
        gsize length = 0;
        char *text = json_generator_to_data(generator, &length);
        out.append(text, length);
        g_free(text);
        return true;
    }
};
#endif

/* The events of libxml2. Text may arrive in pieces, which are joined for the
 * content hash. Names include their prefix, because this interface does not
 * process namespaces. */
struct LibxmlSax final : Parser {
    uint64_t sum = 0;
    bool hashing = false;
    std::string text;
    xmlSAXHandler handler;

    LibxmlSax() {
        memset(&handler, 0, sizeof handler);
        handler.startElement = [](void *self, const xmlChar *name, const xmlChar **attributes) {
            static_cast<LibxmlSax *>(self)->start(name, attributes);
        };
        handler.endElement = [](void *self, const xmlChar *) { static_cast<LibxmlSax *>(self)->flush(); };
        handler.characters = [](void *self, const xmlChar *text, int length) {
            static_cast<LibxmlSax *>(self)->characters((const char *)text, (size_t)length);
        };
        handler.ignorableWhitespace = handler.characters;
        handler.getEntity = [](void *, const xmlChar *name) { return xmlGetPredefinedEntity(name); };
    }
    void start(const xmlChar *name, const xmlChar **attributes) {
        flush();
        const char *n = (const char *)name;
        sum += hashing ? peer_part('e', n, strlen(n)) : peer_touch(n, strlen(n));
        for (; attributes && attributes[0]; attributes += 2) {
            const char *a = (const char *)attributes[0], *v = (const char *)attributes[1];
            sum += hashing ? peer_pair('a', a, strlen(a), v, strlen(v))
                           : peer_touch(a, strlen(a)) + peer_touch(v, strlen(v));
        }
    }
    void characters(const char *at, size_t length) {
        if (hashing) text.append(at, length);
        else sum += peer_touch(at, length);
    }
    void flush() {
        if (hashing && !blank(text.data(), text.size())) sum += peer_part('t', text.data(), text.size());
        text.clear();
    }
    bool parse(Packet &packet, uint64_t &out) {
        sum = 0;
        xmlParserCtxtPtr context =
            xmlCreateMemoryParserCtxt(packet.bytes.data(), (int)packet.bytes.size());
        if (!context) return false;
        xmlCtxtUseOptions(context, XML_PARSE_HUGE | XML_PARSE_NONET | XML_PARSE_NOERROR);
        *context->sax = handler;
        context->userData = this;
        bool good = xmlParseDocument(context) == 0;
        xmlFreeParserCtxt(context);
        out = sum;
        return good;
    }
    bool pass(Packet &packet, uint64_t &out) override {
        hashing = false;
        return parse(packet, out);
    }
    bool content(Packet &packet, uint64_t &out) override {
        hashing = true;
        return parse(packet, out);
    }
};

struct LibxmlDom final : Parser {
    /* A name with its prefix, as in the input. */
    static std::string full(const xmlNs *space, const xmlChar *name) {
        std::string text = space && space->prefix ? std::string((const char *)space->prefix) + ":" : "";
        return text + (const char *)name;
    }
    uint64_t touch(const xmlNode *node) {
        auto add = [](const xmlChar *at) { return at ? peer_touch(at, strlen((const char *)at)) : 0; };
        uint64_t sum = 0;
        for (; node; node = node->next) {
            if (node->type == XML_ELEMENT_NODE) {
                sum += add(node->name);
                if (node->ns && node->ns->prefix) sum += add(node->ns->prefix);
                for (const xmlNs *ns = node->nsDef; ns; ns = ns->next) sum += add(ns->prefix) + add(ns->href);
                for (const xmlAttr *a = node->properties; a; a = a->next)
                    sum += add(a->name) + (a->children ? add(a->children->content) : 0);
                sum += touch(node->children);
            } else if (node->content) {
                sum += add(node->content);
            }
        }
        return sum;
    }
    uint64_t hash(xmlNode *node) {
        uint64_t sum = 0;
        std::string text;
        for (; node; node = node->next) {
            if (node->type == XML_TEXT_NODE || node->type == XML_CDATA_SECTION_NODE) {
                text += (const char *)node->content;
                continue;
            }
            if (node->type == XML_ENTITY_REF_NODE) {
                xmlChar *value = xmlNodeGetContent(node);
                text += (const char *)value;
                xmlFree(value);
                continue;
            }
            if (node->type != XML_ELEMENT_NODE) continue;
            if (!blank(text.data(), text.size())) sum += peer_part('t', text.data(), text.size());
            text.clear();
            std::string name = full(node->ns, node->name);
            sum += peer_part('e', name.data(), name.size());
            for (const xmlNs *ns = node->nsDef; ns; ns = ns->next) {
                std::string key = ns->prefix ? std::string("xmlns:") + (const char *)ns->prefix : "xmlns";
                const char *value = (const char *)ns->href;
                sum += peer_pair('a', key.data(), key.size(), value, strlen(value));
            }
            for (xmlAttr *a = node->properties; a; a = a->next) {
                std::string key = full(a->ns, a->name);
                xmlChar *value = xmlNodeGetContent((xmlNode *)a);
                sum += peer_pair('a', key.data(), key.size(), value, strlen((const char *)value));
                xmlFree(value);
            }
            sum += hash(node->children);
        }
        if (!blank(text.data(), text.size())) sum += peer_part('t', text.data(), text.size());
        return sum;
    }
    bool parse(Packet &packet, uint64_t &sum, const std::function<uint64_t(xmlNode *)> &walk) {
        xmlDocPtr document = xmlReadMemory(packet.bytes.data(), (int)packet.bytes.size(), "packet.xml",
                                           nullptr, XML_PARSE_HUGE | XML_PARSE_NONET | XML_PARSE_NOERROR);
        if (!document) return false;
        sum = walk(xmlDocGetRootElement(document));
        xmlFreeDoc(document);
        return true;
    }
    bool pass(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [this](xmlNode *root) { return touch(root); });
    }
    bool content(Packet &packet, uint64_t &sum) override {
        return parse(packet, sum, [this](xmlNode *root) { return hash(root); });
    }
    bool render(Packet &packet, std::string &out) override {
        xmlDocPtr document = xmlReadMemory(packet.bytes.data(), (int)packet.bytes.size(), "packet.xml",
                                           nullptr, XML_PARSE_HUGE | XML_PARSE_NONET | XML_PARSE_NOERROR);
        if (!document) return false;
        xmlChar *text = nullptr;
        int length = 0;
        xmlDocDumpMemory(document, &text, &length);
        out.append((const char *)text, (size_t)length);
        xmlFree(text);
        xmlFreeDoc(document);
        return true;
    }
};

/* Parses and renders a packet. The content is that of the rendered packet. */
struct Rendering final : Parser {
    std::unique_ptr<Parser> inner;
    std::string out;

    explicit Rendering(std::unique_ptr<Parser> inner) : inner(std::move(inner)) {}
    void prepare(Packet &packet) override { inner->prepare(packet); }
    bool changes_input() const override { return inner->changes_input(); }
    bool pass(Packet &packet, uint64_t &touch) override {
        out.clear();
        bool good = inner->render(packet, out);
        touch = peer_touch(out.data(), out.size());
        return good;
    }
    bool content(Packet &packet, uint64_t &sum) override {
        out.clear();
        if (!inner->render(packet, out)) return false;
        Packet written;
        written.bytes = out;
        written.copy.assign(out.begin(), out.end());
        written.copy.push_back(0);
        inner->prepare(written);
        return inner->content(written, sum);
    }
};

std::unique_ptr<Parser> parser;
std::unique_ptr<Packet> packets[PEER_INPUTS_MAX];

void restore_copy(Packet &packet) { memcpy(packet.copy.data(), packet.bytes.c_str(), packet.bytes.size() + 1); }

/* Size of a row: many copies of a small packet that parsing changes. The
 * copies are created before the timed loop. A row fits the innermost cache. */
const size_t ROW_BYTES = 16 * 1024;

} // namespace

static const char *peer_load(unsigned input, const char *fields) {
    char path[4096];
    if (!peer_field(fields, "file", path, sizeof path)) return "parameter `file` is missing";
    FILE *file = fopen(path, "rb");
    if (!file) return "the file cannot be read";
    auto packet = std::make_unique<Packet>();
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0) packet->bytes.append(block, got);
    fclose(file);
    packet->copy.resize(packet->bytes.size() + 1);
    parser->prepare(*packet);
    packets[input] = std::move(packet);
    return nullptr;
}

static const char *peer_check(unsigned input, struct peer_answer *answer) {
    if (!packets[input]) return "input was not loaded";
    Packet &packet = *packets[input];
    restore_copy(packet);
    if (!parser->content(packet, answer->content)) return "the peer refused the input";
    restore_copy(packet);
    if (!parser->pass(packet, answer->touch)) return "the peer refused the input";
    restore_copy(packet);
    uint64_t calls = peer_calls, bytes = peer_bytes;
    peer_counting = 1;
    parser->pass(packet, answer->touch);
    peer_counting = 0;
    answer->allocations = peer_calls - calls;
    answer->bytes = peer_bytes - bytes;
    return nullptr;
}

static const char *peer_run(unsigned input, uint64_t iterations, struct peer_timed *timed) {
    if (!packets[input]) return "input was not loaded";
    Packet &packet = *packets[input];
    uint64_t touch = 0;
    if (!parser->changes_input()) {
        for (uint64_t i = 0; i < iterations / 16; i++) parser->pass(packet, touch);
        uint64_t cpu = peer_cpu(), wall = peer_wall();
        for (uint64_t i = 0; i < iterations; i++) {
            if (!parser->pass(packet, touch)) return "the peer refused the input";
            timed->touch += touch;
        }
        timed->wall_ns = peer_wall() - wall;
        timed->cpu_ns = peer_cpu() - cpu;
        return nullptr;
    }
    /* Creates a row of copies, then times only its parsing. The first rows are not timed, like the
     * first passes above. */
    const size_t one = packet.bytes.size() + 1;
    const uint64_t row = one >= ROW_BYTES ? 1 : ROW_BYTES / one;
    static std::vector<Packet> copies;
    if (copies.size() < row) copies.resize(row);
    auto fill = [&](uint64_t count) {
        for (uint64_t i = 0; i < count; i++) {
            copies[i].copy.resize(one);
            memcpy(copies[i].copy.data(), packet.bytes.c_str(), one);
        }
    };
    for (uint64_t left = iterations / 16; left > 0;) {
        uint64_t now = left < row ? left : row;
        fill(now);
        for (uint64_t i = 0; i < now; i++) parser->pass(copies[i], touch);
        left -= now;
    }
    for (uint64_t done = 0; done < iterations;) {
        uint64_t now = iterations - done < row ? iterations - done : row;
        fill(now);
        uint64_t cpu = peer_cpu(), wall = peer_wall();
        for (uint64_t i = 0; i < now; i++) {
            if (!parser->pass(copies[i], touch)) return "the peer refused the input";
            timed->touch += touch;
        }
        timed->wall_ns += peer_wall() - wall;
        timed->cpu_ns += peer_cpu() - cpu;
        done += now;
    }
    return nullptr;
}

int main(int argc, char **argv) {
    std::string name = argc > 1 ? argv[1] : "";
    std::string version;
    if (name == "strlen") parser = std::make_unique<Strlen>();
    else if (name == "rapidxml") parser = std::make_unique<RapidXml>(), version = "\trapidxml=1.13";
    else if (name == "pugixml")
        parser = std::make_unique<PugiXml>(), version = "\tpugixml=" + std::to_string(PUGIXML_VERSION);
    else if (name == "simdjson") parser = std::make_unique<SimdJson>();
    else if (name == "simdjson-ondemand") parser = std::make_unique<SimdJsonOnDemand>();
#ifdef WITH_JSON_GLIB
    else if (name == "json-glib")
        parser = std::make_unique<JsonGlib>(), version = "\tjson-glib=" JSON_VERSION_S;
#else
    else if (name == "json-c") parser = std::make_unique<JsonC>(), version = "\tjson-c=" JSON_C_VERSION;
#endif
    else if (name == "libxml2-sax") parser = std::make_unique<LibxmlSax>();
    else if (name == "libxml2-dom") parser = std::make_unique<LibxmlDom>();
    else {
        fputs("usage: c-wire strlen|rapidxml|pugixml|simdjson|simdjson-ondemand|json-c|json-glib|libxml2-sax"
              "|libxml2-dom [render]\n", stderr);
        return 2;
    }
    if (argc > 2 && !strcmp(argv[2], "render")) parser = std::make_unique<Rendering>(std::move(parser));
    if (name.compare(0, 8, "simdjson") == 0)
        version = "\tsimdjson=" + std::to_string(simdjson::SIMDJSON_VERSION_MAJOR) + "." +
                  std::to_string(simdjson::SIMDJSON_VERSION_MINOR) + "." +
                  std::to_string(simdjson::SIMDJSON_VERSION_REVISION) + " " +
                  simdjson::get_active_implementation()->name();
    if (name.compare(0, 7, "libxml2") == 0) version = "\tlibxml2=" LIBXML_DOTTED_VERSION;
    return peer_serve(version.c_str());
}
