/* The chat client of the experiment chat-client: the event of a packet, the state
 * that it changes, and the reply. crates/weir-lab/src/contender/chat has the same
 * client in Rust; the hash tables of both use FNV-1a. */
#ifndef WEIR_LAB_CHAT_CLIENT_H
#define WEIR_LAB_CHAT_CLIENT_H

#include "../peer.h"

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

using View = std::string_view;

/* Names and addresses of crates/weir-lab/src/inputs/chat_session.rs. */
constexpr View OWN_NICK = "warden";
constexpr View ROOM_JID = "weir@chat.lock.example";
constexpr View ROOM_UNIFORM = "psyc://chat.lock.example/@weir";
constexpr size_t HISTORY = 64;

enum Kind { PRESENCE = 1, ENTER, LEAVE, PUBLIC, PRIVATE, PING };

/* A decoded packet. */
struct Event {
    Kind kind;
    View who; /* address of a contact or server, or name of a member of the room */
    uint8_t availability;
    View id;
    View text;
};

enum ReplyKind { NO_REPLY, RECEIVED, PONG, SAY };

/* A packet that the client sends. */
struct Reply {
    ReplyKind kind;
    View to, id, text;
};

struct Fnv {
    using is_transparent = void;
    size_t operator()(View text) const {
        return peer_fnv(0xCBF29CE484222325u, text.data(), text.size());
    }
};

template <class T> using Table = std::unordered_map<std::string, T, Fnv, std::equal_to<>>;

struct Contact {
    uint8_t availability = 0;
    uint64_t unread = 0;
    std::string last;
};

/* The form of an address that all syntaxes share. */
inline std::string canonical(View address) {
    constexpr View scheme = "psyc://";
    if (address.substr(0, scheme.size()) != scheme) return std::string(address);
    address.remove_prefix(scheme.size());
    size_t slash = address.find('/');
    View host = address.substr(0, slash);
    View object = slash == View::npos ? View() : address.substr(slash + 1);
    if (object.empty()) return std::string(host);
    return std::string(object.substr(1)) + "@" + std::string(host);
}

class Client {
    Table<Contact> roster;
    Table<uint64_t> members;
    std::vector<std::string> history;
    size_t messages = 0;
    std::string own;

    Contact &contact(View who) {
        auto found = roster.find(who);
        return found == roster.end() ? roster[std::string(who)] : found->second;
    }
    Reply room_message(View who, View text) {
        if (auto found = members.find(who); found != members.end()) found->second++;
        size_t index = messages++ % HISTORY;
        if (index < history.size()) history[index].assign(text);
        else history.emplace_back(text);
        if (text.substr(0, OWN_NICK.size()) != OWN_NICK) return {};
        text.remove_prefix(OWN_NICK.size());
        if (text.substr(0, 2) != ", ") return {};
        own.assign(who).append(": ").append(text.substr(2));
        return {SAY, {}, {}, own};
    }

public:
    void clear() {
        roster.clear();
        members.clear();
        history.clear();
        messages = 0;
    }
    Reply apply(const Event &event) {
        switch (event.kind) {
        case PRESENCE: contact(event.who).availability = event.availability; return {};
        case ENTER: members.insert_or_assign(std::string(event.who), 0); return {};
        case LEAVE:
            if (auto found = members.find(event.who); found != members.end()) members.erase(found);
            return {};
        case PUBLIC: return room_message(event.who, event.text);
        case PRIVATE: {
            Contact &from = contact(event.who);
            from.unread++;
            from.last.assign(event.text);
            return {RECEIVED, event.who, event.id, {}};
        }
        case PING: return {PONG, event.who, event.id, {}};
        }
        return {};
    }
    uint64_t hash() const {
        uint64_t sum = 0;
        auto add = [&sum](char kind, const std::string &name, const std::string &value) {
            sum += peer_pair(kind, name.data(), name.size(), value.data(), value.size());
        };
        for (const auto &[who, contact] : roster)
            add('c', canonical(who),
                std::to_string(contact.availability) + " " + std::to_string(contact.unread) + " " +
                    contact.last);
        for (const auto &[who, count] : members) add('m', who, std::to_string(count));
        for (size_t i = 0; i < history.size(); i++) add('h', std::to_string(i), history[i]);
        return sum;
    }
};

inline uint64_t hash_of_reply(const Reply &reply) {
    if (reply.kind == SAY) return peer_part('s', reply.text.data(), reply.text.size());
    std::string to = canonical(reply.to);
    char kind = reply.kind == RECEIVED ? 'r' : 'p';
    return peer_pair(kind, to.data(), to.size(), reply.id.data(), reply.id.size());
}

inline uint64_t touch_of(const Event &event) {
    return uint64_t(event.kind) + event.availability + peer_touch(event.who.data(), event.who.size()) +
           peer_touch(event.text.data(), event.text.size());
}

/* A stanza of XMPP, or a message in JSON; absent parts are empty. */
struct Stanza {
    enum Kind { NONE, PRESENCE, GROUPCHAT, CHAT, PING } kind = NONE;
    View from, show, id, body;
};

/* The event of a stanza; false if no session has such a stanza. */
inline bool event_of(const Stanza &stanza, Event &event) {
    size_t slash = stanza.from.find('/');
    View bare = stanza.from.substr(0, slash);
    View member = slash == View::npos ? View() : stanza.from.substr(slash + 1);
    bool in_room = bare == ROOM_JID;
    event = {PRESENCE, bare, 0, stanza.id, stanza.body};
    switch (stanza.kind) {
    case Stanza::PRESENCE:
        if (in_room) {
            event.kind = stanza.show == "unavailable" ? LEAVE : ENTER;
            event.who = member;
            return true;
        }
        if (stanza.show.empty()) event.availability = 7;
        else if (stanza.show == "unavailable") event.availability = 1;
        else if (stanza.show == "dnd") event.availability = 2;
        else if (stanza.show == "xa") event.availability = 3;
        else if (stanza.show == "away") event.availability = 4;
        else if (stanza.show == "chat") event.availability = 8;
        else return false;
        return true;
    case Stanza::GROUPCHAT:
        event.kind = PUBLIC;
        event.who = member;
        return in_room;
    case Stanza::CHAT: event.kind = PRIVATE; return true;
    case Stanza::PING: event.kind = PING; return true;
    case Stanza::NONE: break;
    }
    return false;
}

/* Appends `text`, and replaces each byte for which `escape` returns an escape sequence. */
template <class Escape> void write_escaped(View text, std::string &out, Escape escape) {
    size_t plain = 0;
    for (size_t i = 0; i < text.size(); i++) {
        View escaped = escape(text[i]);
        if (escaped.empty()) continue;
        out.append(text.substr(plain, i - plain)).append(escaped);
        plain = i + 1;
    }
    out.append(text.substr(plain));
}

inline void write_xml(const Reply &reply, std::string &out) {
    switch (reply.kind) {
    case RECEIVED:
        out.append("<message to='").append(reply.to);
        out.append("'><received xmlns='urn:xmpp:receipts' id='").append(reply.id);
        out.append("'/></message>");
        return;
    case PONG:
        out.append("<iq type='result' to='").append(reply.to).append("' id='").append(reply.id);
        out.append("'/>");
        return;
    case SAY:
        out.append("<message type='groupchat' to='").append(ROOM_JID).append("'><body>");
        write_escaped(reply.text, out, [](char byte) -> View {
            return byte == '&' ? "&amp;" : byte == '<' ? "&lt;" : View();
        });
        out.append("</body></message>");
        return;
    case NO_REPLY: return;
    }
}

inline void write_json(const Reply &reply, std::string &out) {
    switch (reply.kind) {
    case RECEIVED:
    case PONG:
        out.append(reply.kind == PONG ? "{\"type\":\"pong\",\"to\":\"" : "{\"type\":\"received\",\"to\":\"");
        out.append(reply.to).append("\",\"id\":\"").append(reply.id).append("\"}");
        return;
    case SAY:
        out.append("{\"type\":\"groupchat\",\"to\":\"").append(ROOM_JID).append("\",\"body\":\"");
        /* The texts of a session have no other character that JSON must escape. */
        write_escaped(reply.text, out, [](char byte) -> View {
            return byte == '"' ? "\\\"" : byte == '\\' ? "\\\\" : byte == '\n' ? "\\n" : View();
        });
        out.append("\"}");
        return;
    case NO_REPLY: return;
    }
}

/* A syntax with a parser. */
struct Dialect {
    virtual ~Dialect() = default;
    /* Whether `decode` changes the bytes that it parses. */
    virtual bool changes_input() const { return false; }
    /* Decodes a packet. `text` is a copy of `packet` that ends in a zero byte, if the parser changes
     * its input. The views of `event` are valid until the next call. Returns false if the parser
     * refuses the packet, or if no session has such a packet. */
    virtual bool decode(View packet, char *text, Event &event) = 0;
    virtual void write(const Reply &reply, std::string &out) = 0;
};

#endif
